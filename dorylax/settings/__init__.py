"""The base of all settings: frozen models that check themselves, words for their errors, and strict YAML."""
