//! `#[toolbox]` on an `impl` block.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::call::expand_call;
use super::declaration::{expand_declaration, expand_name};
use super::tokens::{is_cfg, with_span, without_suggestions};
use crate::tool_fn::ToolFn;
use crate::toolbox::Toolbox;

/// Expands
///
/// ```ignore
/// #[toolbox]
/// impl Calculator {
///     /// Sums two numbers.
///     #[tool]
///     fn sum(&self, a: f64, b: f64) -> f64 { … }
/// }
/// ```
///
/// to the unchanged block and
///
/// ```ignore
/// impl ::tool_core::toolset::Toolbox for Calculator {
///     fn methods() -> &'static [private::Method<Self>] {
///         const { &[private::Method::new(
///             private::ToolName::new("sum"),
///             Some("Sums two numbers."),
///             &[…],
///             None,
///             |this, arguments, _| { … <Self>::sum(&**this, a, b) … },
///         )] }
///     }
/// }
/// ```
///
/// With `fn name` in the attribute, a function of that name returns the set and the trait is not implemented, so a type
/// can have several toolboxes.
pub(crate) fn expand_toolbox(toolbox: &Toolbox) -> TokenStream {
    let block = without_suggestions(&toolbox.block, &toolbox.block.generics, "impl");
    let krate = &toolbox.options.krate;
    let private = quote!(#krate::__private);
    let methods = toolbox.tools.iter().map(|tool| expand_method(tool, toolbox, &private));
    let methods = quote!(const { &[#(#methods),*] });
    let tools = expand_tools(toolbox, &methods, &private);
    quote!(#block #tools)
}

/// Returns a stub for a toolbox with mistakes, so that uses of the toolbox cause no further errors.
pub(crate) fn expand_stub(toolbox: &Toolbox) -> TokenStream {
    let krate = &toolbox.options.krate;
    let private = quote!(#krate::__private);
    expand_tools(toolbox, &quote!(&[]), &private)
}

fn expand_tools(toolbox: &Toolbox, methods: &TokenStream, private: &TokenStream) -> TokenStream {
    let block = &toolbox.block;
    let krate = &toolbox.options.krate;
    let (ty, (generics, _, bounds)) = (&block.self_ty, block.generics.split_for_impl());
    let cfgs = block.attrs.iter().filter(|attribute| is_cfg(attribute));
    let traits = quote! {
        #[allow(unused_imports)]
        use #private::{FallibleOptionKind as _, NotShown as _, PlainKind as _, RequiredByDefault as _};
    };
    // With a span of the macro, rustc suggests no type parameter of this block in place of an unknown type. The suggestion would
    // make the error differ from the one in the user's block, and rustc drops only errors that are the same.
    let span = Span::call_site().located_at(ty.span());
    let tools = match &toolbox.options.function {
        None => quote_spanned! {span=>
            impl #generics #krate::toolset::Toolbox for #ty #bounds {
                fn methods() -> &'static [#private::Method<Self>] {
                    #traits
                    #methods
                }
            }
        },
        Some((visibility, name)) => {
            let doc = "Returns the tools of this value.";
            quote_spanned! {span=>
                impl #generics #ty #bounds {
                    #[doc = #doc]
                    #visibility fn #name(toolbox: impl ::core::convert::Into<::std::sync::Arc<Self>>) -> #krate::ToolSet {
                        #traits
                        #private::toolbox_tool_set(toolbox.into(), #methods)
                    }
                }
            }
        }
    };
    quote! {
        #(#cfgs)*
        #[allow(deprecated)]
        const _: () = {
            #tools
        };
    }
}

/// `Method::new(ToolName::new("sum"), …)`
fn expand_method(tool: &ToolFn, toolbox: &Toolbox, private: &TokenStream) -> TokenStream {
    let name = expand_name(tool, private);
    // All tokens have the span of the method, because a tool is located at its method.
    let name = with_span(tool.signature.ident.span(), quote!(#private::ToolName::new(#name)));
    let declaration = expand_declaration(tool, private);
    let ident = &tool.signature.ident;
    let path = match &toolbox.block.trait_ {
        Some((path, _)) => quote_spanned!(ident.span()=> <Self as #path>::#ident),
        None => quote_spanned!(ident.span()=> <Self>::#ident),
    };
    let call = expand_call(tool, &path, private);
    let cfgs = tool.attributes.iter().filter(|attribute| is_cfg(attribute));
    quote! {
        #(#cfgs)*
        #private::Method::new(#name, #declaration, #call)
    }
}
