//! Text into files.

use rustc_hash::FxHashMap;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::error::BuildError;
use shapetrace_core::ir::{Op, Program, Symbol, SymbolData, Value};

use super::lexer::{LexProblem, Lexer, Name, Token};
use super::printer::push_op_label;
use super::program::{text_order, unique_names, with_symbols};
use super::spelling::plain_digits;
use super::MAX_SOURCE_BYTES;
use crate::model::{HostData, HostOp, Node, NodeId, Nodes, TraceFile, DEPTH_LIMIT};
use crate::FormatError;

/// A text that is no trace file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{line}:{column}: {kind}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub kind: ParseErrorKind,
}

/// What can be wrong with a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The program, which is the first part, is no program.
    #[error(transparent)]
    Program(shapetrace_core::text::ParseErrorKind),
    /// Something else has to stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What has to stand here.
        expected: &'static str,
        /// What stands here.
        found: String,
    },
    /// No token has this character.
    #[error("no token has `{character}` here")]
    BadCharacter {
        /// The character.
        character: char,
    },
    /// Digits that are no number.
    #[error("`{text}` is no number")]
    BadNumber {
        /// The text.
        text: String,
    },
    /// A text in quotes does not end on its line.
    #[error("the quotes are not closed on this line")]
    UnclosedQuote,
    /// A backslash in quotes with something behind it that is no escape.
    #[error("behind a backslash stands `n`, `t`, `r`, `\"`, a backslash, or a character's code as `x1b`, `u2028`")]
    BadEscape,
    /// `%`, `~` or `$` without a name.
    #[error("expected a name right behind `%`, `~` or `$`")]
    EmptyName,
    /// A name that was not defined.
    #[error("`{name}` is not defined above")]
    UnknownName {
        /// The name, as it is written.
        name: String,
    },
    /// A name with two definitions.
    #[error("`{name}` is defined twice")]
    DefinedTwice {
        /// The name, as it is written.
        name: String,
    },
    /// A proxy for a value that the program does not have.
    #[error("the program has no value %{name}; a proxy that stands for none is named `~label`")]
    UnknownValue {
        /// The name of the value.
        name: String,
    },
    /// What has to be in a host block is not there.
    #[error("the host block has no `{what}`")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// What stands in a host block once stands there again.
    #[error("the host block has `{what}` twice")]
    Twice {
        /// What.
        what: &'static str,
    },
    /// The ops of the host block are not those of the program.
    #[error("the next op of the program is `{expected}`, found `{found}`")]
    WrongOp {
        /// The op of the program.
        expected: String,
        /// What stands here.
        found: String,
    },
    /// The host block has more ops than the program.
    #[error("the program has no more ops")]
    SpareOp,
    /// The host block has fewer ops than the program.
    #[error("the next op of the program is missing: `{expected}`")]
    MissingOp {
        /// The op of the program.
        expected: String,
    },
    /// Nothing says how the host finds a symbol.
    #[error("`symbols` has no entry for `{name}`")]
    UnknownSymbol {
        /// The name of the symbol.
        name: String,
    },
    /// The text is too long.
    #[error("the text has more than {limit} bytes")]
    TooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// Brackets inside each other.
    #[error("there are more than {limit} brackets inside each other")]
    TooDeep {
        /// How many there may be.
        limit: u32,
    },
    /// The program is too large.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// What the text says is no file.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Reads a file in its text form. Linear in the length of the text; no recursion.
///
/// ```
/// use shapetrace_format::text::{parse, print};
///
/// let text = "trace(%x) {\n  return %x\n}\n";
/// let file = parse(text)?;
/// assert!(file.host.is_none());
/// assert_eq!(print(&file), text);
/// let error = parse("trace {\n}\nhost {\n  about {\"a\" 1}\n}\n").unwrap_err();
/// assert_eq!(error.to_string(), "4:14: expected `:` and the value of the key, found `1`");
/// # Ok::<(), shapetrace_format::text::ParseError>(())
/// ```
///
/// # Errors
/// [`ParseError`] with the first place where the text is not as the [module](super) says, or that
/// says what is no file: one that is read passes [`TraceFile::check`].
pub fn parse(source: &str) -> Result<TraceFile, ParseError> {
    if source.len() > MAX_SOURCE_BYTES {
        let kind = ParseErrorKind::TooLarge { limit: MAX_SOURCE_BYTES };
        return Err(ParseError { line: 1, column: 1, kind });
    }
    let host_start = find_host(source);
    let mut program = shapetrace_core::text::parse(&source[..host_start.unwrap_or(source.len())]).map_err(|error| {
        let shapetrace_core::text::ParseError { line, column, kind } = error;
        ParseError { line, column, kind: ParseErrorKind::Program(kind) }
    })?;
    if let Some(names) = unique_names(&program) {
        program.name_values(names);
    }
    let Some(host_start) = host_start else { return Ok(TraceFile { program, host: None }) };
    Parser::new(source, host_start, &program)?.file()
}

/// Where the line `host {` starts. In a program no line can start so: an op that applies `host`
/// has a bracket behind it, and quotes end on their line.
fn find_host(source: &str) -> Option<usize> {
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let rest = line.strip_prefix("host");
        if rest.is_some_and(|rest| rest.trim_start_matches([' ', '\t']).starts_with('{')) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

type Parse<T> = Result<T, ParseError>;

/// Where something was said, for messages.
type Place = usize;

struct Parser<'a> {
    source: &'a str,
    program: &'a Program,
    lexer: Lexer<'a>,
    token: Token<'a>,
    start: Place,
    /// The values of the program.
    values: FxHashMap<std::borrow::Cow<'a, str>, Value>,
    nodes: Nodes,
    definitions: [FxHashMap<Name, NodeId>; 3],
    about: Option<NodeId>,
    trace: Option<NodeId>,
    symbols: Option<FxHashMap<Name, NodeId>>,
    ops: Option<Vec<OpLine>>,
}

/// The line of an op.
struct OpLine {
    place: Place,
    copy: u32,
    host_op: HostOp,
}

/// What is read into a node with parts.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Tuple,
    List,
    Dict,
    Object,
    /// A definition of a proxy.
    Proxy(PackedOption<Value>),
}

impl Open {
    fn close(self) -> char {
        match self {
            Self::List => ']',
            Self::Dict => '}',
            _ => ')',
        }
    }
}

struct Frame {
    open: Open,
    place: Place,
    /// Where its parts start among all that are being read.
    first: usize,
}

const PERCENT: usize = 0;
const TILDE: usize = 1;
const DOLLAR: usize = 2;
const SIGILS: [char; 3] = ['%', '~', '$'];

impl<'a> Parser<'a> {
    fn new(source: &'a str, position: usize, program: &'a Program) -> Parse<Self> {
        let mut parser = Self {
            source,
            program,
            lexer: Lexer::new(source, position),
            token: Token::End,
            start: position,
            values: program.values().map(|value| (program.value_name(value), value)).collect(),
            nodes: Nodes::default(),
            definitions: Default::default(),
            about: None,
            trace: None,
            symbols: None,
            ops: None,
        };
        parser.advance()?;
        Ok(parser)
    }

    fn error(&self, place: Place, kind: impl Into<ParseErrorKind>) -> ParseError {
        let before = &self.source[..place];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ParseError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            kind: kind.into(),
        }
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        let found = match &self.token {
            Token::Newline => "the end of the line".to_owned(),
            Token::End => "the end of the text".to_owned(),
            Token::Text(_) => "a text".to_owned(),
            Token::Bytes(_) => "bytes".to_owned(),
            Token::Punctuation(c) => format!("`{c}`"),
            Token::Word(word) => format!("`{word}`"),
            Token::Int(digits) if digits.len() > 40 => "an integer".to_owned(),
            Token::Int(digits) => format!("`{digits}`"),
            Token::Float(bits) => format!("`{:?}`", f64::from_bits(*bits)),
            Token::Value(name) => format!("`{}`", written('%', name)),
            Token::Proxy(name) => format!("`{}`", written('~', name)),
            Token::Shared(name) => format!("`{}`", written('$', name)),
            Token::Copy(copy) => format!("`'{copy}`"),
        };
        self.error(self.start, ParseErrorKind::Unexpected { expected, found })
    }

    fn advance(&mut self) -> Parse<Token<'a>> {
        let (token, start) = self.lexer.next().map_err(|(problem, place)| {
            let kind = match problem {
                LexProblem::Character(character) => ParseErrorKind::BadCharacter { character },
                LexProblem::Number(text) => ParseErrorKind::BadNumber { text },
                LexProblem::UnclosedQuote => ParseErrorKind::UnclosedQuote,
                LexProblem::Escape => ParseErrorKind::BadEscape,
                LexProblem::EmptyName => ParseErrorKind::EmptyName,
            };
            self.error(place, kind)
        })?;
        self.start = start;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn skip_newlines(&mut self) -> Parse<()> {
        while self.token == Token::Newline {
            self.advance()?;
        }
        Ok(())
    }

    fn at(&self, punctuation: char) -> bool {
        self.token == Token::Punctuation(punctuation)
    }

    fn take(&mut self, punctuation: char) -> Parse<bool> {
        let there = self.at(punctuation);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn expect(&mut self, punctuation: char, expected: &'static str) -> Parse<()> {
        if self.take(punctuation)? {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    fn take_word(&mut self, word: &'static str) -> Parse<bool> {
        let there = self.token == Token::Word(word);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    /// The end of a statement: of its line, or the bracket behind it.
    fn end_line(&mut self) -> Parse<()> {
        if self.token == Token::Newline || self.at('}') {
            Ok(())
        } else {
            Err(self.unexpected("the end of the line"))
        }
    }

    fn file(mut self) -> Parse<TraceFile> {
        let place = self.start;
        self.advance()?; // `host`
        self.expect('{', "`{`")?;
        loop {
            self.skip_newlines()?;
            if self.take('}')? {
                break;
            }
            self.statement()?;
            self.end_line()?;
        }
        self.skip_newlines()?;
        if self.token != Token::End {
            return Err(self.unexpected("the end of the text"));
        }
        self.finish(place)
    }

    fn statement(&mut self) -> Parse<()> {
        let place = self.start;
        let twice = |what| ParseErrorKind::Twice { what };
        match &self.token {
            Token::Word("about") => {
                self.advance()?;
                let id = self.node()?;
                if self.about.replace(id).is_some() {
                    return Err(self.error(place, twice("about")));
                }
            }
            Token::Word("trace") => {
                self.advance()?;
                let id = self.node()?;
                if self.trace.replace(id).is_some() {
                    return Err(self.error(place, twice("trace")));
                }
            }
            Token::Word("symbols") => {
                if self.symbols.is_some() {
                    return Err(self.error(place, twice("symbols")));
                }
                self.symbols()?;
            }
            Token::Word("ops") => {
                if self.ops.is_some() {
                    return Err(self.error(place, twice("ops")));
                }
                self.ops()?;
            }
            Token::Value(_) | Token::Proxy(_) | Token::Shared(_) => self.definition()?,
            _ => return Err(self.unexpected("`about`, `symbols`, `trace`, `ops`, a definition or `}`")),
        }
        Ok(())
    }

    fn definition(&mut self) -> Parse<()> {
        let place = self.start;
        let (table, name, open) = match self.advance()? {
            Token::Value(name) => {
                let Some(&value) = self.values.get(name.text.as_str()) else {
                    return Err(self.error(place, ParseErrorKind::UnknownValue { name: name.text }));
                };
                (PERCENT, name, Some(Open::Proxy(value.into())))
            }
            Token::Proxy(name) => (TILDE, name, Some(Open::Proxy(PackedOption::NONE))),
            Token::Shared(name) => (DOLLAR, name, None),
            _ => unreachable!("a definition starts with a name"),
        };
        self.expect('=', "`=`")?;
        let id = match open {
            None => self.node()?,
            Some(open) => {
                let place = self.start;
                let kind = match self.advance()? {
                    Token::Word(word) => word.to_owned(),
                    Token::Text(text) => text,
                    token => {
                        self.token = token;
                        self.start = place;
                        return Err(self.unexpected("what the proxy is: `name(argument, ...)`"));
                    }
                };
                if !self.at('(') {
                    return Err(self.unexpected("`(`"));
                }
                self.node_with(Some((open, kind, place)))?
            }
        };
        if self.definitions[table].contains_key(&name) {
            return Err(self.error(place, ParseErrorKind::DefinedTwice { name: written(SIGILS[table], &name) }));
        }
        self.definitions[table].insert(name, id);
        Ok(())
    }

    fn symbols(&mut self) -> Parse<()> {
        self.advance()?;
        self.expect('{', "`{`")?;
        let mut symbols = FxHashMap::default();
        loop {
            self.skip_newlines()?;
            if self.take('}')? {
                self.symbols = Some(symbols);
                return Ok(());
            }
            let place = self.start;
            let name = self.symbol()?;
            self.expect('=', "`=`")?;
            let id = self.node()?;
            if symbols.contains_key(&name) {
                return Err(self.error(place, ParseErrorKind::DefinedTwice { name: name.text }));
            }
            symbols.insert(name, id);
            self.end_line()?;
        }
    }

    /// The name of a symbol, perhaps with a number behind it.
    fn symbol(&mut self) -> Parse<Name> {
        let text = match &mut self.token {
            Token::Word(word) if *word != "_" => (*word).to_owned(),
            Token::Text(text) => std::mem::take(text),
            _ => return Err(self.unexpected("the name of a symbol, or `}`")),
        };
        self.advance()?;
        let mut copy = 0;
        if let Token::Copy(number) = self.token {
            copy = number;
            self.advance()?;
        }
        Ok(Name { text, copy })
    }

    fn ops(&mut self) -> Parse<()> {
        self.advance()?;
        self.expect('{', "`{`")?;
        let program = self.program;
        let mut lines = Vec::with_capacity(program.op_count());
        for op in text_order(program) {
            self.skip_newlines()?;
            if self.at('}') {
                return Err(self.error(self.start, ParseErrorKind::MissingOp { expected: op_label(program, op) }));
            }
            lines.push(self.op_line(op)?);
            self.end_line()?;
        }
        self.skip_newlines()?;
        if !self.take('}')? {
            return Err(self.error(self.start, ParseErrorKind::SpareOp));
        }
        self.ops = Some(lines);
        Ok(())
    }

    fn op_line(&mut self, op: Op) -> Parse<OpLine> {
        let place = self.start;
        let program = self.program;
        let mut results = program.results(op).iter();
        let mut matches = true;
        if matches!(self.token, Token::Value(_) | Token::Word("_")) {
            loop {
                let name = match self.advance()? {
                    Token::Value(name) if name.copy == 0 => Some(name.text),
                    Token::Word("_") => None,
                    _ => return Err(self.error(place, self.wrong_op(op, place))),
                };
                matches &= results.next().is_some_and(|slot| match (slot.get(), name) {
                    (Some(value), Some(name)) => program.value_name(value) == name,
                    (None, None) => true,
                    _ => false,
                });
                if !self.take(',')? {
                    break;
                }
            }
            self.expect('=', "`,` or `=`")?;
        }
        let symbol = self.symbol()?;
        matches &= results.next().is_none() && symbol.text == program.symbol(op).name;
        if !matches {
            return Err(self.error(place, self.wrong_op(op, place)));
        }
        self.expect(':', "`:`")?;
        if !self.take_word("args")? {
            return Err(self.unexpected("`args`"));
        }
        let args = self.node()?;
        let kwargs =
            if self.take_word("kwargs")? { self.node()? } else { self.add(place, Node::Dict(Box::default()))? };
        if !self.take_word("output")? {
            return Err(self.unexpected("`kwargs` or `output`"));
        }
        let output = self.node()?;
        let details =
            if self.take_word("details")? { self.node()? } else { self.add(place, Node::Dict(Box::default()))? };
        Ok(OpLine { place, copy: symbol.copy, host_op: HostOp { args, kwargs, output, details } })
    }

    fn wrong_op(&self, op: Op, place: Place) -> ParseErrorKind {
        let line = self.source[place..].lines().next().unwrap_or_default();
        let found = line.split_once(": ").map_or(line, |(label, _)| label).chars().take(80).collect();
        ParseErrorKind::WrongOp { expected: op_label(self.program, op), found }
    }

    fn add(&mut self, place: Place, node: Node) -> Parse<NodeId> {
        self.nodes.add(node).map_err(|error| self.error(place, error))
    }

    fn defined(&mut self, table: usize, name: &Name) -> Parse<NodeId> {
        let Some(&id) = self.definitions[table].get(name) else {
            let name = written(SIGILS[table], name);
            return Err(self.error(self.start, ParseErrorKind::UnknownName { name }));
        };
        self.advance()?;
        Ok(id)
    }

    fn node(&mut self) -> Parse<NodeId> {
        self.node_with(None)
    }

    /// A node with all that is in it, or, behind its name, a proxy. Iterative.
    fn node_with(&mut self, proxy: Option<(Open, String, Place)>) -> Parse<NodeId> {
        let mut frames: Vec<Frame> = Vec::new();
        let mut parts: Vec<NodeId> = Vec::new();
        if let Some((open, kind, place)) = proxy {
            self.advance()?;
            frames.push(Frame { open, place, first: 0 });
            parts.push(self.add(place, Node::Text(kind.into()))?);
        }
        loop {
            if !frames.is_empty() {
                self.skip_newlines()?;
            }
            let mut done = None;
            if let Some(frame) = frames.last() {
                let waits_for_value = frame.open == Open::Dict && (parts.len() - frame.first) % 2 == 1;
                if self.at(frame.open.close()) && !waits_for_value {
                    self.advance()?;
                    done = Some(self.close(&mut frames, &mut parts)?);
                }
            }
            if done.is_none() {
                done = self.open(&mut frames, &mut parts)?;
            }
            // What is done is a part of what is open.
            while let Some(id) = done.take() {
                let Some(frame) = frames.last() else { return Ok(id) };
                let (open, first) = (frame.open, frame.first);
                parts.push(id);
                self.skip_newlines()?;
                if open == Open::Dict && (parts.len() - first) % 2 == 1 {
                    self.expect(':', "`:` and the value of the key")?;
                } else if self.take(',')? {
                } else if self.at(open.close()) {
                    if open == Open::Tuple && parts.len() - first == 1 {
                        return Err(self.unexpected("`,`: a tuple of one is written `(a,)`"));
                    }
                    self.advance()?;
                    done = Some(self.close(&mut frames, &mut parts)?);
                } else {
                    return Err(self.unexpected("`,` or the end of the brackets"));
                }
            }
        }
    }

    /// A node without parts, or none behind a bracket that opens one with parts.
    fn open(&mut self, frames: &mut Vec<Frame>, parts: &mut Vec<NodeId>) -> Parse<Option<NodeId>> {
        let place = self.start;
        let node = match &mut self.token {
            Token::Punctuation(bracket @ ('(' | '[' | '{')) => {
                let open = match bracket {
                    '(' => Open::Tuple,
                    '[' => Open::List,
                    _ => Open::Dict,
                };
                self.advance()?;
                self.push_frame(frames, Frame { open, place, first: parts.len() })?;
                return Ok(None);
            }
            Token::Value(name) => {
                let name = name.clone();
                return self.defined(PERCENT, &name).map(Some);
            }
            Token::Proxy(name) => {
                let name = name.clone();
                return self.defined(TILDE, &name).map(Some);
            }
            Token::Shared(name) => {
                let name = name.clone();
                return self.defined(DOLLAR, &name).map(Some);
            }
            Token::Int(digits) => {
                let digits = plain_digits(digits);
                digits.parse().map_or_else(|_| Node::BigInt(digits.into()), Node::Int)
            }
            Token::Float(bits) => Node::Float(*bits),
            Token::Bytes(bytes) => Node::Bytes(std::mem::take(bytes).into()),
            Token::Word("None") => Node::None,
            Token::Word("True") => Node::Bool(true),
            Token::Word("False") => Node::Bool(false),
            Token::Word(word) => {
                let word = *word;
                self.advance()?;
                if !self.at('(') {
                    return Err(self.unexpected("`(`: a name without quotes is that of an object"));
                }
                self.open_object(frames, parts, word.into(), place)?;
                return Ok(None);
            }
            Token::Text(text) => {
                let text: Box<str> = std::mem::take(text).into();
                self.advance()?;
                if self.at('(') {
                    self.open_object(frames, parts, text, place)?;
                    return Ok(None);
                }
                return self.add(place, Node::Text(text)).map(Some);
            }
            _ => return Err(self.unexpected("a node")),
        };
        self.advance()?;
        self.add(place, node).map(Some)
    }

    fn open_object(
        &mut self,
        frames: &mut Vec<Frame>,
        parts: &mut Vec<NodeId>,
        kind: Box<str>,
        place: Place,
    ) -> Parse<()> {
        self.advance()?;
        self.push_frame(frames, Frame { open: Open::Object, place, first: parts.len() })?;
        parts.push(self.add(place, Node::Text(kind))?);
        Ok(())
    }

    fn push_frame(&mut self, frames: &mut Vec<Frame>, frame: Frame) -> Parse<()> {
        if frames.len() > DEPTH_LIMIT as usize {
            return Err(self.error(frame.place, ParseErrorKind::TooDeep { limit: DEPTH_LIMIT }));
        }
        frames.push(frame);
        Ok(())
    }

    fn close(&mut self, frames: &mut Vec<Frame>, parts: &mut Vec<NodeId>) -> Parse<NodeId> {
        let Frame { open, place, first } = frames.pop().expect("a frame is open");
        let children = parts.drain(first..).collect();
        let node = match open {
            Open::Tuple => Node::Tuple(children),
            Open::List => Node::List(children),
            Open::Dict => Node::Dict(children),
            Open::Object => Node::Object(children),
            Open::Proxy(value) => Node::Proxy(value, children),
        };
        self.add(place, node)
    }

    fn finish(mut self, place: Place) -> Parse<TraceFile> {
        let missing = |what| self.error(place, ParseErrorKind::Missing { what });
        let about = self.about.ok_or_else(|| missing("about"))?;
        let trace = self.trace.ok_or_else(|| missing("trace"))?;
        let entries = self.symbols.as_ref().ok_or_else(|| missing("symbols"))?;
        let lines = self.ops.as_ref().ok_or_else(|| missing("ops"))?;

        // The core knows one symbol where the host may know several.
        let program = self.program;
        let mut symbols: Vec<SymbolData> = Vec::new();
        let mut found: Vec<NodeId> = Vec::new();
        let mut known: FxHashMap<(Symbol, NodeId), Symbol> = FxHashMap::default();
        let mut op_symbols = vec![Symbol::from_index(0); program.op_count()];
        let mut places = vec![place; program.op_count()];
        let empty = HostOp { args: about, kwargs: about, output: about, details: about };
        let mut ops = vec![empty; program.op_count()];
        let mut name = Name { text: String::new(), copy: 0 };
        for (op, line) in text_order(program).zip(lines) {
            let data = program.symbol(op);
            name.text.clone_from(&data.name);
            name.copy = line.copy;
            let Some(&id) = entries.get(&name) else {
                let mut name = String::new();
                push_op_symbol(&mut name, data, line.copy);
                return Err(self.error(line.place, ParseErrorKind::UnknownSymbol { name }));
            };
            let symbol = *known.entry((program.symbol_id(op), id)).or_insert_with(|| {
                symbols.push(data.clone());
                found.push(id);
                Symbol::from_index(symbols.len() - 1)
            });
            op_symbols[op.index()] = symbol;
            places[op.index()] = line.place;
            ops[op.index()] = line.host_op;
        }
        let program = with_symbols(program, symbols, &op_symbols).map_err(|error| self.error(place, error))?;
        let nodes = std::mem::take(&mut self.nodes);
        let host = HostData { nodes, about, trace, symbols: found, ops };
        let file = TraceFile { program, host: Some(host) };
        file.check().map_err(|error| {
            let place = match &error {
                FormatError::Inconsistent { op, .. } => places[op.index()],
                _ => place,
            };
            self.error(place, error)
        })?;
        Ok(file)
    }
}

fn push_op_symbol(text: &mut String, data: &SymbolData, copy: u32) {
    super::spelling::push_word(text, &data.name);
    if copy > 0 {
        text.push('\'');
        text.push_str(&copy.to_string());
    }
}

fn op_label(program: &Program, op: Op) -> String {
    let mut label = String::new();
    push_op_label(&mut label, program, op, 0);
    label
}

/// A name as it is written.
fn written(sigil: char, name: &Name) -> String {
    let mut text = String::from(sigil);
    super::spelling::push_name(&mut text, &name.text);
    if name.copy > 0 {
        text.push('\'');
        text.push_str(&name.copy.to_string());
    }
    text
}
