//! An optional entity in the space of the entity itself.

use super::Entity;

/// `Option<E>` in four bytes: the reserved index `u32::MAX` is "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PackedOption<E> {
    index: u32,
    marker: std::marker::PhantomData<E>,
}

impl<E: Entity> PackedOption<E> {
    /// No entity.
    pub const NONE: Self = Self { index: u32::MAX, marker: std::marker::PhantomData };

    /// The entity, if there is one.
    #[inline]
    pub fn get(self) -> Option<E> {
        (self.index != u32::MAX).then(|| E::from_index(self.index as usize))
    }

    /// Whether there is no entity.
    #[inline]
    pub fn is_none(self) -> bool {
        self.index == u32::MAX
    }
}

impl<E: Entity> From<E> for PackedOption<E> {
    #[inline]
    fn from(entity: E) -> Self {
        Self { index: entity.index() as u32, marker: std::marker::PhantomData }
    }
}

impl<E: Entity> From<Option<E>> for PackedOption<E> {
    #[inline]
    fn from(entity: Option<E>) -> Self {
        entity.map_or(Self::NONE, Self::from)
    }
}

impl<E: Entity> Default for PackedOption<E> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<E: Entity + std::fmt::Debug> std::fmt::Debug for PackedOption<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
