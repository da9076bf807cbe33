"""Structures of circuits: random region graphs, Chow-Liu trees, plain and hidden, LearnSPN."""

from __future__ import annotations

from learners.circuits.structures.chow_liu import chow_liu, hclt
from learners.circuits.structures.learnspn import learnspn
from learners.circuits.structures.random_regions import random_regions
from learners.circuits.structures.variables import Variable, describe_variables, independent

__all__ = ["Variable", "chow_liu", "describe_variables", "hclt", "independent", "learnspn", "random_regions"]
