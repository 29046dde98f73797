"""The whole at one look: what is made of both clusters for people, by the plans that decide. Pure."""
