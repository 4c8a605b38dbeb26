//! `#[assistant]` on a trait.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, ItemTrait, Path, ReturnType, Signature, TraitItem, TraitItemFn, Type, TypeParamBound,
    parse_quote,
};

use super::tokens::is_cfg;
use crate::assistant::{Assistant, Method, Parameter, Question, Role};
use crate::template::Piece;

/// Expands
///
/// ```ignore
/// #[assistant("You plan trips.", agent = TripAgent)]
/// trait TripPlanner {
///     /// Returns sights worth a visit.
///     #[ask("Suggest three sights in {city}.", max_turns = 3)]
///     async fn sights(&self, city: &str, #[inject] user: User) -> Result<Vec<Sight>, RunError>;
///
///     #[ask]
///     fn chat(&self, message: &str) -> EventStream;
/// }
/// ```
///
/// to
///
/// ```ignore
/// trait TripPlanner: Send + Sync {
///     /// Returns sights worth a visit.
///     fn sights(&self, city: &str, user: User) -> impl Future<Output = Result<Vec<Sight>, RunError>> + Send;
///
///     fn chat(&self, message: &str) -> EventStream;
/// }
///
/// /// An agent that implements [`TripPlanner`].
/// #[derive(Clone, Debug)]
/// struct TripAgent(private::Agent);
///
/// const _: () = {
///     impl From<private::Agent> for TripAgent { … }
///
///     impl TripPlanner for TripAgent {
///         fn sights(&self, city: &str, user: User) -> impl Future<Output = Result<Vec<Sight>, RunError>> + Send {
///             private::reply::<Result<Vec<Sight>, RunError>>(
///                 private::ask_template(&self.0, &[private::Piece::Text("You plan trips.")], &[
///                     private::Piece::Text("Suggest three sights in "),
///                     private::Piece::Value("city", &city),
///                     private::Piece::Text("."),
///                 ])
///                 .context(user)
///                 .limits(|l| l.max_turns(3)),
///             )
///         }
///
///         fn chat(&self, message: &str) -> EventStream {
///             private::from_ask::<EventStream>(
///                 private::ask_message(&self.0, &[private::Piece::Text("You plan trips.")], message),
///             )
///         }
///     }
/// };
/// ```
///
/// The question is written before anything is awaited, so the future is `Send` whatever the arguments are.
pub(crate) fn expand_assistant(assistant: &Assistant) -> TokenStream {
    let private = private(assistant);
    let methods = assistant.methods.iter().map(|method| expand_method(method, assistant, &private));
    // cargo builds the crate again when one of these files changes.
    let files = assistant.methods.iter().filter_map(|method| method.options.file.as_ref());
    let files = files.chain(&assistant.options.file).map(|file| {
        let path = &file.path;
        quote!(
            const _: &str =
                ::core::include_str!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", #path));
        )
    });
    expand(assistant, &quote!(#(#files)*), &quote!(#(#methods)*))
}

/// Returns a stub for an assistant with mistakes, so that uses of the trait cause no further errors.
pub(crate) fn expand_stub(assistant: &Assistant) -> TokenStream {
    let methods = assistant.item.items.iter().filter_map(|item| match item {
        TraitItem::Fn(method) if method.default.is_none() => {
            let output = &method.sig.output;
            let is_future = method.sig.asyncness.is_some()
                || matches!(output, ReturnType::Type(_, ty) if matches!(**ty, Type::ImplTrait(_)));
            let body = match is_future {
                true => quote!(async { ::core::unreachable!() }),
                false => quote!(::core::unreachable!()),
            };
            let (cfgs, signature) = (cfgs(method), desugar(&method.sig));
            Some(quote!(#(#cfgs)* #signature { #body }))
        }
        // Methods can name it.
        TraitItem::Type(item) if item.default.is_none() => {
            let name = &item.ident;
            Some(quote!(type #name = ();))
        }
        _ => None,
    });
    expand(assistant, &TokenStream::new(), &quote!(#(#methods)*))
}

/// Returns the trait, and the struct that implements it if its name is known.
fn expand(assistant: &Assistant, constants: &TokenStream, methods: &TokenStream) -> TokenStream {
    let private = private(assistant);
    let mut item = assistant.item.clone();
    add_supertraits(&mut item);
    // With a span of the macro, rustc suggests no type parameter of the trait in place of an unknown type. The suggestion would
    // make the error differ from the one in the implementation, and rustc drops only errors that are the same.
    item.ident.set_span(Span::call_site().located_at(item.ident.span()));
    for item in &mut item.items {
        let TraitItem::Fn(method) = item else { continue };
        match &method.default {
            None => method.sig = desugar(&method.sig),
            Some(body) if method.sig.asyncness.is_some() => *method = expand_default(method, body),
            Some(_) => {}
        }
    }
    let Some(agent) = assistant.options.agent.as_ref().filter(|agent| **agent != item.ident) else {
        return item.into_token_stream();
    };
    let cfgs: Vec<_> = item.attrs.iter().filter(|attribute| is_cfg(attribute)).collect();
    let (name, visibility) = (&item.ident, &item.vis);
    let doc = format!("An agent that implements [`{name}`].");
    let (generics, arguments, bounds) = item.generics.split_for_impl();
    quote! {
        #item

        #(#cfgs)*
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #agent(#private::Agent);

        #(#cfgs)*
        #[allow(deprecated)]
        const _: () = {
            #constants

            impl ::core::convert::From<#private::Agent> for #agent {
                fn from(agent: #private::Agent) -> Self {
                    Self(agent)
                }
            }

            impl #generics #name #arguments for #agent #bounds {
                #methods
            }
        };
    }
}

fn private(assistant: &Assistant) -> TokenStream {
    let krate = &assistant.options.krate;
    quote!(#krate::__private)
}

/// `fn sights(&self, city: &str) -> impl Future<Output = …> + Send`
fn desugar(signature: &Signature) -> Signature {
    let mut signature = signature.clone();
    if signature.asyncness.take().is_some() {
        let output: Type = match &signature.output {
            ReturnType::Type(_, ty) => (**ty).clone(),
            ReturnType::Default => parse_quote!(()),
        };
        signature.output =
            parse_quote!(-> impl ::core::future::Future<Output = #output> + ::core::marker::Send);
    }
    signature
}

/// Adds `Send` and `Sync`, without which no future that borrows an assistant is `Send`.
fn add_supertraits(item: &mut ItemTrait) {
    for (name, bound) in
        [("Send", parse_quote!(::core::marker::Send)), ("Sync", parse_quote!(::core::marker::Sync))]
    {
        let is_bound = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Trait(bound) if bound.path.segments.last().is_some_and(|last| last.ident == name));
        if !item.supertraits.iter().any(is_bound) {
            item.supertraits.push(bound);
        }
    }
    item.colon_token.get_or_insert_with(Default::default);
}

/// Makes the future of an `async fn` with a body `Send`, like the futures of the other methods.
fn expand_default(method: &TraitItemFn, body: &Block) -> TraitItemFn {
    let mut method = method.clone();
    let body = quote_spanned!(body.span()=> async move #body);
    method.sig = desugar(&method.sig);
    method.default = Some(parse_quote!({ #body }));
    method.attrs.push(parse_quote!(#[allow(clippy::manual_async_fn)]));
    method
}

fn cfgs(method: &TraitItemFn) -> impl Iterator<Item = &Attribute> {
    method.attrs.iter().filter(|attribute| is_cfg(attribute))
}

/// `fn sights(&self, city: &str) -> impl Future<Output = …> + Send { … }`
fn expand_method(method: &Method, assistant: &Assistant, private: &TokenStream) -> TokenStream {
    let (cfgs, signature) = (cfgs(&method.item), desugar(method.signature()));
    let question = expand_question(method, &assistant.instructions, private);
    let settings = expand_settings(method, assistant, private);
    let kind = match (method.signature().asyncness, &method.options.by_tool) {
        (None, _) => quote!(from_ask),
        (Some(_), None) => quote!(reply),
        (Some(_), Some(_)) => quote!(reply_by_tool),
    };
    let ReturnType::Type(_, output) = &method.signature().output else { return TokenStream::new() };
    quote! {
        #(#cfgs)*
        #signature {
            #private::#kind::<#output>(#question #settings)
        }
    }
}

/// `ask_template(self, &[…], &[…])`
fn expand_question(method: &Method, instructions: &[Piece], private: &TokenStream) -> TokenStream {
    let this = match method.signature().receiver() {
        Some(receiver) => receiver.self_token.to_token_stream(),
        None => TokenStream::new(),
    };
    let expand = |pieces: &[Piece]| {
        let pieces = pieces.iter().map(|piece| expand_piece(piece, method, private));
        quote!(&[#(#pieces),*])
    };
    let instructions = expand(instructions);
    match &method.question {
        Question::Template(pieces) => {
            let pieces = expand(pieces);
            quote!(#private::ask_template(&#this.0, #instructions, #pieces))
        }
        Question::Message | Question::Invalid => {
            let message = method.plain_parameters().map(argument);
            quote!(#private::ask_message(&#this.0, #instructions, #(#message)*))
        }
    }
}

/// `Piece::Text("…")`, `Piece::Value("city", &city)` or `Piece::Debug("city", &city)`
fn expand_piece(piece: &Piece, method: &Method, private: &TokenStream) -> TokenStream {
    let (name, is_debug) = match piece {
        Piece::Text(text) => return quote!(#private::Piece::Text(#text)),
        Piece::Placeholder { name, is_debug, .. } => (name, is_debug),
    };
    let parameter = method.parameters.iter().find(|parameter| parameter.is_named(name));
    let Some(parameter) = parameter else { return TokenStream::new() };
    let argument = argument(parameter);
    let kind = if *is_debug { quote!(Debug) } else { quote!(Value) };
    quote_spanned!(parameter.ty.span()=> #private::Piece::#kind(#name, &#argument))
}

/// Returns the parameter as an argument, whose errors appear at its type.
fn argument(parameter: &Parameter) -> TokenStream {
    let name = parameter.name.clone().map(|mut name| {
        name.set_span(name.span().located_at(parameter.ty.span()));
        name
    });
    name.into_token_stream()
}

/// `.conversation(id).context(user).tools(…).options(…).limits(|l| l.max_turns(3))`
fn expand_settings(method: &Method, assistant: &Assistant, private: &TokenStream) -> TokenStream {
    let options = &method.options;
    let values = method.parameters.iter().filter_map(|parameter| {
        let (argument, span) = (argument(parameter), parameter.ty.span());
        match parameter.role {
            Role::Plain | Role::Instructions => None,
            Role::Conversation => Some(quote_spanned!(span=> .conversation(#argument))),
            Role::Injected => Some(quote_spanned!(span=> .context(#argument))),
        }
    });
    let krate = &assistant.options.krate;
    let tools = |paths: &[Path]| quote!(#private::expand_tools! { (#krate) #(#paths),* });
    let more_tools = (!options.tools.is_empty()).then(|| {
        let tools = tools(&options.tools);
        quote!(.tools(#tools))
    });
    let only_tools = options.only_tools.as_ref().map(|(_, paths)| {
        let tools = tools(paths);
        quote!(.only_tools(#tools))
    });
    let model_options = options.model_options.iter().map(|option| {
        let (setter, value) = (format_ident!("with_{}", option.name), &option.value);
        quote!(.#setter(#value))
    });
    let model_options = (!options.model_options.is_empty())
        .then(|| quote!(.options(<#private::ModelOptions as ::core::default::Default>::default() #(#model_options)*)));
    let max_turns = options.max_turns.as_ref().map(|turns| quote!(.limits(|l| l.max_turns(#turns))));
    quote!(#(#values)* #more_tools #only_tools #model_options #max_turns)
}
