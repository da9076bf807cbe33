"""What every model is: its protocol, the questions it takes, its explanations and parameters."""
