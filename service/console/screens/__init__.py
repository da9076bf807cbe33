"""One module for each screen: the model of its page, made of what the product answers."""
