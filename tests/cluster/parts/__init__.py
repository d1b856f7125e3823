"""What tests/cluster/node is made of."""
