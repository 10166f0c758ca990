"""Shared by all tests: tiny networks are fastest on one thread."""

import torch

torch.set_num_threads(1)
