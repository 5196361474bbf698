"""Policy and environment in, episodes whose reward arrives late out.

Every episode has seeds of its own, made from the seed of the settings and the number of the
episode. So the data do not depend on how many workers share the work. The true rewards of steps
leave this room only with `keep_true_rewards`.
"""
