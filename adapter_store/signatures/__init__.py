"""Signed adapters: bundles of OpenSSF Model Signing, the signers that the operator trusts, and the policy."""
