"""What answers look like, field by field. `loragate.gateway.wire` builds them; tests hold the two together."""
