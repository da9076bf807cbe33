"""Tables that are text: how their lines are cut, and the types of their columns."""
