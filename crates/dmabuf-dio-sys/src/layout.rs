// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pins the layout of structures that cross into the kernel.

/// Fails the build unless `$type` has `$size` bytes and each field lies at its offset,
/// and lists every field: a field left out would make the pattern below incomplete.
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
