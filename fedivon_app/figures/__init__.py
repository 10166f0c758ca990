"""BayesADMM's figures, computed anew."""
