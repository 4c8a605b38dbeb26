//! Methods that set a field.

/// Defines methods that set a field and return the value: `with_seed(seed: i64) seed = Some(seed);`.
macro_rules! setters {
    ($type:ty { $($(#[$attribute:meta])* $name:ident($value:ident: $value_type:ty) $field:ident = $set:expr;)* }) => {
        impl $type {$(
            $(#[$attribute])*
            pub fn $name(mut self, $value: $value_type) -> Self {
                self.$field = $set;
                self
            }
        )*}
    };
}

pub(crate) use setters;
