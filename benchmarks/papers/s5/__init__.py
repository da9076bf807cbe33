"""S5: Wang, Wicker, Kwiatkowska (2022), Tractable uncertainty for structure learning."""
