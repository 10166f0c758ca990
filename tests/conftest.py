"""Shared by all tests."""

import torch
from flwr.supercore.task_identity import TaskIdentity

torch.set_num_threads(1)  # tiny networks are fastest so
# What Flower sets in its own processes, so that messages can be made in this one too.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
