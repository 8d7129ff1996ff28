"""The HTTP edge: OpenAI's wire format in, one engine request per prompt out."""
