// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the layout of structures that are passed to the kernel.

/// Fails the build unless `$type` has `$size` bytes and each field is at its offset. Every field
/// must be listed: the pattern below is exhaustive.
macro_rules! pin_layout {
    ($type:ident: $size:literal { $($field:ident @ $offset:literal),+ $(,)? }) => {
        const _: () = {
            #[allow(dead_code)]
            fn every_field(value: &$type) {
                let $type { $($field: _),+ } = value;
            }
            assert!(::core::mem::size_of::<$type>() == $size);
            $(assert!(::core::mem::offset_of!($type, $field) == $offset);)+
        };
    };
}

pub(crate) use pin_layout;
