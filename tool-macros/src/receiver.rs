//! The receivers of a toolbox's methods: `&self`, `self: Arc<Self>` or `self: &Arc<Self>`.

use syn::{GenericArgument, PathArguments, ReceiverKind, Type};

/// The form of a method's receiver.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Receiver {
    /// `&self`
    Reference,
    /// `self: Arc<Self>`
    Arc,
    /// `self: &Arc<Self>`
    ArcReference,
}

impl Receiver {
    /// Returns the receiver's form, or `None` if a tool cannot have such a receiver.
    pub(crate) fn from_syn(receiver: &syn::Receiver) -> Option<Self> {
        match &receiver.kind {
            ReceiverKind::Reference(_, _, None) => Some(Self::Reference),
            ReceiverKind::Typed(_, ty) => match &**ty {
                Type::Reference(reference) if reference.mutability.is_none() => {
                    if is_self(&reference.elem) {
                        Some(Self::Reference)
                    } else {
                        is_arc_of_self(&reference.elem).then_some(Self::ArcReference)
                    }
                }
                other => is_arc_of_self(other).then_some(Self::Arc),
            },
            _ => None,
        }
    }
}

fn is_self(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("Self"))
}

fn is_arc_of_self(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Arc") else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    matches!(arguments.args.first(), Some(GenericArgument::Type(inner)) if is_self(inner))
}
