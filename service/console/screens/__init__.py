"""The screens by what they show: the model of each page, made of what the product answers."""
