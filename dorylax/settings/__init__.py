"""What all settings are made of: frozen models that check themselves, their words in errors, strict YAML."""
