"""Recipes: settings that somebody chose for a model on a graph, and which of them a run takes what is not given from.

`base` says what one is, `tuned` lists those of published searches, `default` has what was chosen for graphs that have
none, and `choose` finds the one of a run. Published recipes themselves stand beside their models (`layers.registry`).
"""
