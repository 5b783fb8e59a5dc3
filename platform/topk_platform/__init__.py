"""The study platform: data, models, training, search, records and reports."""
