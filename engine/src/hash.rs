//! Hash tables whose keys peers may choose: seeded at random.

/// A table with a seeded hasher.
pub(crate) type HashMap<K, V> = hashbrown::HashMap<K, V, ahash::RandomState>;
