//! Randomly seeded hash tables: peers may choose the keys, so collisions must not be predictable.

/// A table with a seeded hasher.
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, ahash::RandomState>;
