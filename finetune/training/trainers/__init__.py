"""transformers' and TRL's trainers as loragate runs them."""
