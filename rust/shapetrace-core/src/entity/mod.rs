//! Containers keyed by dense ids. Nothing here knows what an op is.

mod bit_set;
mod csr;
mod packed_option;
mod stamp_map;
mod stamp_set;

pub use bit_set::BitSet;
pub use csr::Csr;
pub use packed_option::PackedOption;
pub use stamp_map::StampMap;
pub use stamp_set::StampSet;

/// A dense `u32` index that stands for one entity of a table.
pub trait Entity: Copy + Eq {
    /// The entity with this index. `u32::MAX` is reserved for [`PackedOption`].
    fn from_index(index: usize) -> Self;
    /// The index of this entity in its table.
    fn index(self) -> usize;
}

/// Declares an entity id whose `Display` is its spelling in messages: a prefix and the index.
macro_rules! entity {
    ($(#[$doc:meta])* $visibility:vis $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $visibility struct $name(u32);

        impl $crate::entity::Entity for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                debug_assert!(index < u32::MAX as usize);
                Self(index as u32)
            }
            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use entity;
