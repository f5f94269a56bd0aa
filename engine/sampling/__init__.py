"""From logits to tokens: penalties, grammar masks, random sampling."""
