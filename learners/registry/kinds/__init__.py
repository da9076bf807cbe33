"""The kinds of models and their capabilities; `learners.registry.model_kinds` lists them."""
