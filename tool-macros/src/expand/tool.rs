//! `#[tool]` on a function.
//!
//! Each tool has one static and one function pointer, because compile time and size grow with code per tool. Everything that does not
//! depend on the parameters' types is in ordinary functions.
//!
//! `fn sum` has a `struct sum {}` beside it, because one `use` then imports both the function and the tool.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{ItemFn, Visibility};

use super::call::expand_call;
use super::declaration::{expand_declaration, expand_name};
use super::tokens::{is_cfg, is_copied, without_suggestions};
use crate::fallback;
use crate::names::PRIMITIVE_TYPES;
use crate::tool_fn::ToolFn;

/// Expands
///
/// ```ignore
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: Option<f64>) -> f64 { … }
/// ```
///
/// to the unchanged function and
///
/// ```ignore
/// #[doc = "The tool `sum`, for `tools![sum]`."]
/// struct sum {}
///
/// const _: () = {
///     use ::tool_core::__private as private;
///     use private::{FallibleOptionKind as _, NotShown as _, PlainKind as _, RequiredByDefault as _};
///
///     static TOOL: private::DeclaredTool = private::DeclaredTool::new::<sum>();
///
///     impl private::StaticTool for sum {
///         const NAME: private::ToolName = private::ToolName::new("sum");
///         const DECLARED: Option<private::Declared> = Some(private::Declared::new(
///             <sum as private::StaticTool>::NAME,
///             Some("Sums two numbers."),
///             &[
///                 private::Parameter::new::<f64>("a", None, private::ParameterProbe::<f64>::__TOOL_CORE_IS_REQUIRED, …),
///                 private::Parameter::new::<Option<f64>>("b", None, private::ParameterProbe::<Option<f64>>::__TOOL_CORE_IS_REQUIRED, …),
///             ],
///             None,
///             |arguments, _| {
///                 let (Some(a), Some(b), true) =
///                     (arguments.take::<f64>(0), arguments.take::<Option<f64>>(1), arguments.are_valid())
///                 else {
///                     return None;
///                 };
///                 let output = sum(a, b);
///                 Some(private::Pending::ready(private::Returned::new(&output).__tool_core_kind().convert(output)))
///             },
///         ));
///         …
///     }
///     private::inventory::submit! { private::Registration(&TOOL) }
/// };
/// ```
///
/// All parameter types are named in one constant, so rustc reports an unmet bound only once.
pub(crate) fn expand_tool(tool: &ToolFn, function: &ItemFn) -> TokenStream {
    let ident = &tool.signature.ident;
    let cfgs = tool.attributes.iter().filter(|attribute| is_cfg(attribute));
    let carrier = expand_carrier(tool, &function.vis);
    let krate = &tool.options.krate;
    let private = quote!(#krate::__private);

    let name = expand_name(tool, &private);
    let declaration = expand_declaration(tool, &private);
    let call = expand_call(tool, &ident.to_token_stream(), &private);
    let function = without_suggestions(function, &tool.signature.generics, &ident.to_string());

    quote! {
        #function

        #carrier

        #(#cfgs)*
        #[allow(deprecated, unused_imports)]
        const _: () = {
            use #private::{FallibleOptionKind as _, NotShown as _, PlainKind as _, RequiredByDefault as _};

            static __TOOL: #private::DeclaredTool = #private::DeclaredTool::new::<#ident>();

            impl #private::StaticTool for #ident {
                const NAME: #private::ToolName = #private::ToolName::new(#name);
                const DECLARED: ::core::option::Option<#private::Declared> = ::core::option::Option::Some(
                    #private::Declared::new(<#ident as #private::StaticTool>::NAME, #declaration, #call)
                );

                fn tool() -> &'static #private::DeclaredTool {
                    &__TOOL
                }
            }

            #private::inventory::submit! { #private::Registration(&__TOOL) }
        };
    }
}

/// Returns the function, a stub for its tool and the errors, so that uses of either cause no further errors.
pub(crate) fn expand_with_errors(tool: &ToolFn, function: &ItemFn, errors: &TokenStream) -> TokenStream {
    let mut function = function.clone();
    fallback::clean_signature(&mut function.sig);
    // An `impl` block cannot contain a type, and a stub must not shadow a primitive type.
    let is_method = function.sig.receiver().is_some();
    let is_primitive = PRIMITIVE_TYPES.iter().any(|name| function.sig.ident == name);
    let stub = (!is_method && !is_primitive).then(|| expand_stub(tool, &function.vis));
    quote!(#function #stub #errors)
}

/// Returns a stub for a tool with mistakes, so that uses of the tool cause no further errors.
fn expand_stub(tool: &ToolFn, visibility: &Visibility) -> TokenStream {
    let ident = &tool.signature.ident;
    let cfgs = tool.attributes.iter().filter(|attribute| is_cfg(attribute));
    let carrier = expand_carrier(tool, visibility);
    let name = ident.to_string();
    let krate = &tool.options.krate;
    let private = quote!(#krate::__private);
    quote! {
        #carrier

        #(#cfgs)*
        #[allow(deprecated)]
        const _: () = {
            impl #private::StaticTool for #ident {
                const NAME: #private::ToolName = #private::ToolName::new(#name);
                const DECLARED: ::core::option::Option<#private::Declared> = ::core::option::Option::None;

                fn tool() -> &'static #private::DeclaredTool {
                    ::core::unreachable!()
                }
            }
        };
    }
}

/// `struct sum {}`
fn expand_carrier(tool: &ToolFn, visibility: &Visibility) -> TokenStream {
    let ident = &tool.signature.ident;
    let copied = tool.attributes.iter().filter(|attribute| is_copied(attribute));
    let doc = match &tool.name.constant {
        None => format!("The tool `{}`, for `tools![{ident}]`.", tool.name.text),
        Some(_) => format!("A tool, for `tools![{ident}]`."),
    };
    quote! {
        #[doc = #doc]
        #(#copied)*
        #[allow(dead_code, non_camel_case_types, missing_copy_implementations, missing_debug_implementations)]
        #visibility struct #ident {}
    }
}
