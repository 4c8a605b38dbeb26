//! The user's item, cleaned of what only we understand.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn};

use crate::docs;
use crate::names::PARAM;

/// What is emitted beside our errors: the item, so that nothing else misses it; but no variadics, which
/// rustc would refuse once more.
pub(crate) fn with_errors(function: &ItemFn, errors: &TokenStream) -> TokenStream {
    let mut function = function.clone();
    function.sig.variadic = None;
    quote!(#function #errors)
}

/// Takes our attributes and the docs off the parameters: rustc knows the one not, and allows the other
/// not there. It is done on the way to errors too, so that one mistake gives one message.
pub(crate) fn clean(function: &mut ItemFn) {
    for input in &mut function.sig.inputs {
        let attributes = match input {
            FnArg::Typed(input) => &mut input.attrs,
            FnArg::Receiver(receiver) => &mut receiver.attrs,
        };
        attributes.retain(|attribute| !docs::is_doc(attribute) && !attribute.path().is_ident(PARAM));
    }
}
