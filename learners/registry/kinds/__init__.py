"""The kinds of models, each with what can be made of its models; `learners.registry.model_kinds` lists them."""
