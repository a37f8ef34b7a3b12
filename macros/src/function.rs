//! A parser for the part of the function grammar that the attributes need.

use std::iter::Peekable;

use proc_macro::token_stream::IntoIter;
use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// A function, split into the parts that are assembled again. If one part is missing, so are all later ones.
pub(crate) struct Function {
    whole: TokenStream,
    attributes: TokenStream,
    visibility: TokenStream,
    /// `async`, and all other qualifiers before `fn`.
    qualifiers: Vec<TokenTree>,
    /// `fn`, if the item is a function.
    keyword: Option<TokenTree>,
    name: Option<Ident>,
    /// The tokens between the name and the parameters.
    generics: Option<TokenTree>,
    parameters: Option<Group>,
    /// The tokens between the parameters and the body.
    returns: TokenStream,
    body: Option<Group>,
}

/// An error message and its place in the source.
pub(crate) struct Complaint {
    message: &'static str,
    span: Span,
}

impl Complaint {
    pub(crate) fn new(message: &'static str, span: Span) -> Self {
        Complaint { message, span }
    }
}

impl Function {
    pub(crate) fn parse(whole: TokenStream) -> Self {
        let mut tokens = Tokens::new(whole.clone());
        // Attributes move to the outer function, so they are kept apart.
        let mut attributes = TokenStream::new();
        while tokens.next_is("#") {
            attributes.extend(tokens.next());
            attributes.extend(tokens.next());
        }
        let mut visibility = TokenStream::new();
        if tokens.next_is("pub") {
            visibility.extend(tokens.next());
            visibility.extend(tokens.next_group(Delimiter::Parenthesis).map(TokenTree::from));
        }
        // All qualifiers are kept, so that `check` can reject those other than `async`.
        let mut qualifiers = Vec::new();
        while ["const", "async", "unsafe", "safe", "extern"]
            .iter()
            .any(|word| tokens.next_is(word))
            || matches!(tokens.peek(), Some(TokenTree::Literal(_)))
        {
            qualifiers.extend(tokens.next());
        }
        // An item without `fn` and a name is not a function. Later parts are then missing too.
        let keyword = if tokens.next_is("fn") { tokens.next() } else { None };
        let name = match (&keyword, tokens.peek()) {
            (Some(_), Some(TokenTree::Ident(name))) => Some(name.clone()),
            _ => None,
        };
        tokens.next();
        let generics = if tokens.next_is("<") { tokens.next() } else { None };
        let parameters = tokens.next_group(Delimiter::Parenthesis);
        // The body is the last token, so braces in a type are not taken for it.
        let mut rest: Vec<TokenTree> = tokens.rest().collect();
        let body = rest
            .pop()
            .and_then(|last| Tokens::new(last.into()).next_group(Delimiter::Brace));
        Function {
            whole,
            attributes,
            visibility,
            qualifiers,
            keyword,
            name,
            generics,
            parameters,
            returns: rest.into_iter().collect(),
            body,
        }
    }

    /// Checks that the attribute can run the function.
    pub(crate) fn check(&self) -> Result<(), Complaint> {
        let not_a_function = || {
            let first = self.whole.clone().into_iter().next();
            Complaint::new(
                "the attribute is for an `async fn` with a body",
                first.map_or_else(Span::call_site, |token| token.span()),
            )
        };
        // The most specific message comes first: not a function, generic, without a body.
        let (Some(keyword), Some(_)) = (&self.keyword, &self.name) else {
            return Err(not_a_function());
        };
        if let Some(generics) = &self.generics {
            return Err(Complaint::new("the function must not be generic", generics.span()));
        }
        let (Some(parameters), Some(_)) = (&self.parameters, &self.body) else {
            return Err(not_a_function());
        };
        // A block that awaits needs `async`. Other qualifiers would be lost in the outer function.
        if !self.qualifiers.iter().any(|word| word.to_string() == "async") {
            return Err(Complaint::new(
                "the function must be async: write `async fn`",
                keyword.span(),
            ));
        }
        if let Some(other) = self.qualifiers.iter().find(|word| word.to_string() != "async") {
            return Err(Complaint::new("the function must be a plain `async fn`", other.span()));
        }
        // The outer function calls the inner one without arguments.
        if !parameters.stream().is_empty() {
            return Err(Complaint::new("the function takes no parameters", parameters.span()));
        }
        let bounds = self
            .returns
            .clone()
            .into_iter()
            .find(|token| token.to_string() == "where");
        match bounds {
            Some(bounds) => Err(Complaint::new("the function must not be generic", bounds.span())),
            None => Ok(()),
        }
    }

    /// Returns a plain function that contains this one and passes its future to the function at the path `runner`, after
    /// `arguments`. Called only after [`check`](Function::check) succeeded.
    pub(crate) fn wrapped(self, attribute: &str, runner: &str, arguments: &str) -> TokenStream {
        let (Some(keyword), Some(name), Some(parameters), Some(body)) =
            (self.keyword, self.name, self.parameters, self.body)
        else {
            return self.whole;
        };
        let signature: TokenStream = [keyword, name.clone().into(), parameters.into()]
            .into_iter()
            .chain(self.returns)
            .collect();

        let mut inside = TokenStream::new();
        inside.extend(self.qualifiers);
        inside.extend(signature.clone());
        inside.extend([TokenTree::from(body)]);
        let nothing = Group::new(Delimiter::Parenthesis, TokenStream::new());
        let mut call = text(arguments);
        call.extend([TokenTree::from(name), nothing.into()]);
        inside.extend(text(runner));
        inside.extend([TokenTree::from(Group::new(Delimiter::Parenthesis, call))]);

        let mut outside = text(attribute);
        outside.extend(self.attributes);
        outside.extend(self.visibility);
        outside.extend(signature);
        outside.extend([TokenTree::from(Group::new(Delimiter::Brace, inside))]);
        outside
    }

    /// Returns a compile error, and an empty function of the same name, so that its absence is not a second error.
    pub(crate) fn refused(self, complaint: &Complaint) -> TokenStream {
        // Every token gets the span of the complaint, so that the compiler points there.
        let punct = |character, spacing| {
            let mut punct = Punct::new(character, spacing);
            punct.set_span(complaint.span);
            TokenTree::from(punct)
        };
        let ident = |word| TokenTree::from(Ident::new(word, complaint.span));
        let mut message = Literal::string(complaint.message);
        message.set_span(complaint.span);
        let mut message = Group::new(Delimiter::Brace, TokenTree::from(message).into());
        message.set_span(complaint.span);
        let mut result: TokenStream = [
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("core"),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("compile_error"),
            punct('!', Spacing::Alone),
            message.into(),
        ]
        .into_iter()
        .collect();
        // The empty function replaces the item. An item without a name is kept as it is.
        match self.name {
            Some(name) => {
                result.extend(text("#[allow(dead_code)]"));
                result.extend(self.visibility);
                result.extend(text("fn"));
                result.extend([TokenTree::from(name)]);
                result.extend(text("() {}"));
            }
            None => result.extend(self.whole),
        }
        result
    }
}

/// Parses tokens that this crate generates.
fn text(text: &str) -> TokenStream {
    match text.parse() {
        Ok(tokens) => tokens,
        Err(error) => unreachable!("{text:?} is well formed: {error}"),
    }
}

/// The tokens of an item, without the invisible groups that a macro puts around its arguments.
struct Tokens {
    tokens: Peekable<IntoIter>,
}

impl Tokens {
    fn new(tokens: TokenStream) -> Self {
        Tokens {
            tokens: tokens.into_iter().peekable(),
        }
    }

    fn peek(&mut self) -> Option<&TokenTree> {
        while let Some(TokenTree::Group(group)) = self.tokens.peek()
            && group.delimiter() == Delimiter::None
        {
            let mut opened = group.stream();
            self.tokens.next();
            opened.extend(self.tokens.by_ref());
            self.tokens = opened.into_iter().peekable();
        }
        self.tokens.peek()
    }

    fn next(&mut self) -> Option<TokenTree> {
        self.peek();
        self.tokens.next()
    }

    fn next_is(&mut self, word: &str) -> bool {
        match self.peek() {
            Some(TokenTree::Ident(ident)) => ident.to_string() == word,
            Some(TokenTree::Punct(punct)) => word.len() == 1 && word.starts_with(punct.as_char()),
            _ => false,
        }
    }

    fn next_group(&mut self, delimiter: Delimiter) -> Option<Group> {
        match self.peek() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                let group = group.clone();
                self.tokens.next();
                Some(group)
            }
            _ => None,
        }
    }

    /// Returns the remaining tokens unchanged.
    fn rest(self) -> impl Iterator<Item = TokenTree> {
        self.tokens
    }
}
