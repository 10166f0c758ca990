"""What FedIvon does not have, added from outside: a method, a rule, a data source and a score."""
