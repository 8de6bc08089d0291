//! The one name for shared ownership in the engine: [`Arc`].
//!
//! It is `alloc::sync::Arc` where the target has atomic pointers. Elsewhere (thumbv6m, such as a Cortex-M0)
//! it is the `Arc` of `portable-atomic-util`, and the program chooses how counts are kept: it turns on
//! `critical-section` of the crate `portable-atomic`, or `unsafe-assume-single-core`. Stable Rust does not
//! turn such an `Arc<T>` into an `Arc<dyn Trait>` by itself: write `Arc::from(Box::new(value) as Box<dyn
//! Trait>)`.

#[cfg(target_has_atomic = "ptr")]
pub use alloc::sync::Arc;

#[cfg(not(target_has_atomic = "ptr"))]
pub use portable_atomic_util::Arc;

/// `Arc<dyn Trait>` of a value, on every target.
#[cfg(target_has_atomic = "ptr")]
macro_rules! share {
    ($value:expr => $object:ty) => {
        $crate::sync::Arc::new($value) as $crate::sync::Arc<$object>
    };
}

/// `Arc<dyn Trait>` of a value, on every target.
#[cfg(not(target_has_atomic = "ptr"))]
macro_rules! share {
    ($value:expr => $object:ty) => {
        $crate::sync::Arc::from(alloc::boxed::Box::new($value) as alloc::boxed::Box<$object>)
    };
}

pub(crate) use share;
