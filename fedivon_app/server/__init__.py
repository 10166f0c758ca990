"""What the ServerApp does around the rounds: set-up, pretraining, evaluation, recording."""
