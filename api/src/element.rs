//! The numbers of atomic operations and of typed buffers.

use ofi_core::atomic::Datatype;

/// A type of elements that atomic operations change (fi_atomic(3)): integers and floating-point
/// numbers of 8 to 64 bits, in the byte order of the machine.
///
/// ```
/// fn is_element<T: ofi::Element>() {}
/// is_element::<u64>();
/// is_element::<f32>();
/// ```
pub trait Element: Copy + Send + sealed::Sealed + 'static {
    /// The interface's name of the type.
    #[doc(hidden)]
    const DATATYPE: Datatype;
    /// The element in the low bytes of a word.
    #[doc(hidden)]
    fn to_word(self) -> u64;
    /// The element that has these bytes.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty as $bits:ty: $datatype:ident;)*) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DATATYPE: Datatype = Datatype::$datatype;
            fn to_word(self) -> u64 {
                u64::from(<$bits>::from_ne_bytes(self.to_ne_bytes()))
            }
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}

elements! {
    u8 as u8: Uint8;
    u16 as u16: Uint16;
    u32 as u32: Uint32;
    u64 as u64: Uint64;
    i8 as u8: Int8;
    i16 as u16: Int16;
    i32 as u32: Int32;
    i64 as u64: Int64;
    f32 as u32: Float;
    f64 as u64: Double;
}
