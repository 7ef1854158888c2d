//! Tokens into programs. Scopes are followed with a counter, not with recursion.

use rustc_hash::{FxHashMap, FxHashSet};

use super::defaults::{
    kind_of_word, kind_word, literal_kind, result_kind, symbol_flags, OP_FLAG_WORDS, SYMBOL_FLAG_WORDS,
};
use super::lexer::{LexProblem, Lexer, Spanned, Token, MAX_SOURCE_BYTES};
use crate::entity::PackedOption;
use crate::error::BuildError;
use crate::ir::{
    Number, NumberType, Op, OpFlags, OpSpec, Operand, OutlineBuilder, Program, ScalarOp, Symbol, SymbolData,
    SymbolFlags, Value, ValueKind,
};

/// A text that is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Something else has to stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What has to stand here.
        expected: &'static str,
        /// What stands here.
        found: String,
    },
    /// No token has this character.
    #[error("no token starts with `{character}`")]
    BadCharacter {
        /// The character.
        character: char,
    },
    /// Digits that are no number of 64 bits.
    #[error("`{text}` is no number that fits 64 bits")]
    BadNumber {
        /// The text.
        text: String,
    },
    /// A text in quotes does not end on its line.
    #[error("the quotes are not closed on this line")]
    UnclosedQuote,
    /// A backslash in quotes with something else behind it than `n`, `"` or a backslash.
    #[error("behind a backslash stands `n`, `\"` or a backslash")]
    BadEscape,
    /// `%` or `#` without a name.
    #[error("expected a name right behind `%` or `#`")]
    EmptyName,
    /// No flag of this name.
    #[error("there is no flag `#{word}`")]
    UnknownFlag {
        /// The word.
        word: String,
    },
    /// No kind of value of this name.
    #[error("`{word}` is no kind of value; kinds are tensor, int, float, bool, number and other")]
    UnknownKind {
        /// The word.
        word: String,
    },
    /// A value with two kinds.
    #[error("%{name} is of kind {before}, not {now}")]
    KindConflict {
        /// The value.
        name: String,
        /// The kind that it had.
        before: &'static str,
        /// The kind that is said here.
        now: &'static str,
    },
    /// Only a tensor has a shape.
    #[error("%{name} is of kind {kind}; only a tensor has a shape, made of numbers")]
    NoShape {
        /// The value.
        name: String,
        /// Its kind.
        kind: &'static str,
    },
    /// The shape of a tensor stands in one place.
    #[error("the shape of %{name} was given before")]
    ShapeTwice {
        /// The tensor.
        name: String,
    },
    /// The text is too long.
    #[error("the text has more than {limit} bytes")]
    TooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// The program is too large, or malformed in another way.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A program with the places of its ops in the text.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The program.
    pub program: Program,
    /// The line of `trace`, from 1.
    pub line: usize,
    /// The ops in the order of the text, each with the line on which it starts.
    pub op_lines: Vec<(Op, usize)>,
}

/// Reads one program.
///
/// ```
/// use shapetrace_core::text::{parse, print};
///
/// let text = "trace(%x) {\n  %y = prims.sin(%x)\n  return %y\n}\n";
/// assert_eq!(print(&parse(text)?), text);
/// let error = parse("trace(%x) {\n  %y = prims.sin(%x\n}").unwrap_err();
/// assert_eq!(error.to_string(), "3:1: expected `,` or the end of the list, found `}`");
/// # Ok::<(), shapetrace_core::text::ParseError>(())
/// ```
///
/// # Errors
/// [`ParseError`] with the first place where the text is not as the [module](super) says.
pub fn parse(source: &str) -> Result<Program, ParseError> {
    let mut parser = Parser::new(source)?;
    parser.skip_newlines()?;
    let parsed = parser.program()?;
    parser.skip_newlines()?;
    if parser.token != Token::End {
        return Err(parser.unexpected("the end of the text"));
    }
    Ok(parsed.program)
}

/// Reads all programs of a text.
///
/// # Errors
/// As [`parse`].
pub fn parse_all(source: &str) -> Result<Vec<Parsed>, ParseError> {
    let mut parser = Parser::new(source)?;
    let mut all = Vec::new();
    parser.skip_newlines()?;
    while parser.token != Token::End {
        all.push(parser.program()?);
        parser.skip_newlines()?;
    }
    Ok(all)
}

type Parse<T> = Result<T, ParseError>;

struct Parser<'a> {
    source: &'a str,
    lexer: Lexer<'a>,
    token: Token<'a>,
    start: usize,
    line: u32,
    outline: OutlineBuilder,
    kinds: FxHashMap<Value, ValueKind>,
    shaped: FxHashSet<Value>,
    symbols: FxHashMap<(String, SymbolFlags, Option<ScalarOp>), Symbol>,
    op_lines: Vec<usize>,
    /// Names that are new as results of the op that is being read, where there are many.
    new_results: FxHashSet<String>,
}

/// Up to this many result slots are searched one by one.
const SCAN_LIMIT: usize = 16;

/// A result slot as it is written.
enum Slot {
    Hole,
    Value(Value),
    /// Mentioned for the first time, without a kind.
    New(String, Place),
}

/// Where something was said, for messages.
type Place = usize;

impl<'a> Parser<'a> {
    fn new(source: &'a str) -> Parse<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            let kind = ParseErrorKind::TooLarge { limit: MAX_SOURCE_BYTES };
            return Err(ParseError { line: 1, column: 1, kind });
        }
        let mut parser = Self {
            source,
            lexer: Lexer::new(source),
            token: Token::End,
            start: 0,
            line: 1,
            outline: OutlineBuilder::default(),
            kinds: FxHashMap::default(),
            shaped: FxHashSet::default(),
            symbols: FxHashMap::default(),
            op_lines: Vec::new(),
            new_results: FxHashSet::default(),
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
            Token::Punctuation(c) => format!("`{c}`"),
            Token::Word(word) => format!("`{word}`"),
            Token::Quoted(text) => format!("{text:?}"),
            Token::Value(name) => format!("`%{name}`"),
            Token::Flag(word) => format!("`#{word}`"),
            Token::Number(number) => format!("`{number}`"),
        };
        self.error(self.start, ParseErrorKind::Unexpected { expected, found })
    }

    fn advance(&mut self) -> Parse<Token<'a>> {
        let (token, start, line): Spanned<'a> = self.lexer.next().map_err(|(problem, place)| {
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
        self.line = line;
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

    /// `( item, item )`, over as many lines as it likes; an item at a time.
    fn list(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Parse<()>) -> Parse<()> {
        self.advance()?;
        self.skip_newlines()?;
        while !self.take(close)? {
            item(self)?;
            self.skip_newlines()?;
            if self.take(',')? {
                self.skip_newlines()?;
            } else if !self.at(close) {
                return Err(self.unexpected("`,` or the end of the list"));
            }
        }
        Ok(())
    }

    fn program(&mut self) -> Parse<Parsed> {
        let line = self.line as usize;
        self.outline = OutlineBuilder::default();
        self.kinds.clear();
        self.shaped.clear();
        self.symbols.clear();
        self.op_lines.clear();
        if self.token != Token::Word("trace") {
            return Err(self.unexpected("`trace`"));
        }
        self.advance()?;
        if self.at('(') {
            self.list(')', |parser| {
                let (value, place) = parser.mention(ValueKind::Tensor)?;
                parser.built(place, |outline| outline.builder().input(value))
            })?;
        }
        while !self.at('{') {
            let keep = match self.token {
                Token::Word("keep") => true,
                Token::Word("pin") => false,
                _ => return Err(self.unexpected("`keep`, `pin` or `{`")),
            };
            self.advance()?;
            if !self.at('(') {
                return Err(self.unexpected("`(`"));
            }
            self.list(')', |parser| {
                let (value, place) = parser.mention(ValueKind::Tensor)?;
                parser.built(
                    place,
                    |outline| {
                        if keep {
                            outline.builder().output(value)
                        } else {
                            outline.builder().pin(value)
                        }
                    },
                )
            })?;
        }
        self.advance()?;
        self.ops()?;
        let place = self.start;
        let (program, ids) = std::mem::take(&mut self.outline).finish().map_err(|error| self.error(place, error))?;
        let op_lines = ids.into_iter().zip(self.op_lines.drain(..)).collect();
        Ok(Parsed { program, line, op_lines })
    }

    /// What is between the braces of the program, and the last brace.
    fn ops(&mut self) -> Parse<()> {
        loop {
            self.skip_newlines()?;
            if self.take('}')? {
                if !self.outline.close_scope() {
                    return Ok(());
                }
            } else {
                self.op()?;
                if self.take('{')? {
                    self.outline.open_scope();
                    continue;
                }
            }
            if self.token != Token::Newline && !self.at('}') {
                return Err(self.unexpected("a flag, `{` or the end of the line"));
            }
        }
    }

    fn op(&mut self) -> Parse<()> {
        self.op_lines.push(self.line as usize);
        let place = self.start;
        let (slots, form) = self.results()?;
        let Some(name) = self.symbol_name()? else {
            return Err(self.unexpected("a value, `_`, `()` or the name of a symbol"));
        };
        if slots.len() > SCAN_LIMIT {
            let new = |slot: &Slot| if let Slot::New(name, _) = slot { Some(name.clone()) } else { None };
            self.new_results = slots.iter().filter_map(new).collect();
        }
        let mut operands = Vec::new();
        if name == "return" && !self.at('(') {
            while !matches!(self.token, Token::Newline | Token::End | Token::Flag(_) | Token::Punctuation('{' | '}')) {
                self.operand(&slots, &mut operands)?;
                if !self.take(',')? {
                    break;
                }
            }
        } else if self.at('(') {
            self.list(')', |parser| parser.operand(&slots, &mut operands))?;
        } else {
            return Err(self.unexpected("`(`"));
        }
        let (symbol, symbol_flags, scalar, flags) = self.flags(name, form)?;

        let operand_kinds = operands.iter().map(|operand| match operand {
            PendingOperand::Value(value) => self.kinds[value],
            PendingOperand::New(_) => ValueKind::Tensor,
            PendingOperand::Number(number) => literal_kind(*number),
        });
        let default = result_kind(symbol_flags, scalar, operand_kinds);
        let mut results: Vec<PackedOption<Value>> = Vec::with_capacity(slots.len());
        for slot in slots {
            results.push(match slot {
                Slot::Hole => PackedOption::NONE,
                Slot::Value(value) => value.into(),
                Slot::New(name, place) => self.value(&name, None, default, place)?.into(),
            });
        }
        let mut final_operands: Vec<Operand> = Vec::with_capacity(operands.len());
        for operand in operands {
            final_operands.push(match operand {
                PendingOperand::Value(value) => value.into(),
                PendingOperand::New(name) => self.outline.builder().find_value(&name).expect("a result").into(),
                PendingOperand::Number(number) => {
                    self.built(place, |outline| outline.builder().constant(number))?.into()
                }
            });
        }
        self.outline.op(&OpSpec { symbol, flags, operands: &final_operands, results: &results });
        Ok(())
    }

    /// The results with the `=` behind them, and the flags that their form implies.
    fn results(&mut self) -> Parse<(Vec<Slot>, OpFlags)> {
        if self.at('(') {
            self.advance()?;
            self.expect(')', "`)`: an empty result is `()`")?;
            self.expect('=', "`=`")?;
            return Ok((Vec::new(), OpFlags::EMPTY_RESULT));
        }
        if !matches!(self.token, Token::Value(_) | Token::Word("_")) {
            return Ok((Vec::new(), OpFlags::LITERAL_RESULT));
        }
        let mut slots = Vec::new();
        let mut form = OpFlags::empty();
        loop {
            if self.token == Token::Word("_") {
                self.advance()?;
                slots.push(Slot::Hole);
                form |= OpFlags::LITERAL_RESULT;
            } else {
                slots.push(self.result()?);
            }
            if self.take('=')? {
                return Ok((slots, form));
            }
            self.expect(',', "`,` or `=`")?;
            self.skip_newlines()?;
        }
    }

    fn result(&mut self) -> Parse<Slot> {
        let place = self.start;
        let name = self.value_name()?;
        if self.at(':') {
            return Ok(Slot::Value(self.described(&name, ValueKind::Tensor, place)?));
        }
        Ok(match self.outline.builder().find_value(&name) {
            Some(value) => Slot::Value(value),
            None => Slot::New(name, place),
        })
    }

    fn symbol_name(&mut self) -> Parse<Option<String>> {
        let name = match &mut self.token {
            Token::Word(word) if *word != "_" => (*word).to_owned(),
            Token::Quoted(text) => std::mem::take(text),
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(name))
    }

    fn operand(&mut self, slots: &[Slot], operands: &mut Vec<PendingOperand>) -> Parse<()> {
        if let Token::Number(number) = self.token {
            self.advance()?;
            operands.push(PendingOperand::Number(number));
            return Ok(());
        }
        if let Token::Value(name) = &self.token {
            // A value that is new as a result of this op gets its kind there.
            let is_new = |slot: &Slot| matches!(slot, Slot::New(new, _) if new == name);
            let is_new_result = self.outline.builder().find_value(name).is_none()
                && match slots.len() {
                    ..=SCAN_LIMIT => slots.iter().any(is_new),
                    _ => self.new_results.contains(name.as_ref()),
                };
            if is_new_result {
                let name = self.value_name()?;
                if self.at(':') {
                    return Err(self.unexpected("no kind: it stands where the value is a result"));
                }
                operands.push(PendingOperand::New(name));
                return Ok(());
            }
        }
        let (value, _) = self.mention(ValueKind::Tensor)?;
        operands.push(PendingOperand::Value(value));
        Ok(())
    }

    fn value_name(&mut self) -> Parse<String> {
        let Token::Value(name) = &mut self.token else { return Err(self.unexpected("a value or a number")) };
        let name = std::mem::take(name).into_owned();
        self.advance()?;
        Ok(name)
    }

    /// A value, with its kind where that is said.
    fn mention(&mut self, default: ValueKind) -> Parse<(Value, Place)> {
        let place = self.start;
        let name = self.value_name()?;
        Ok((self.described(&name, default, place)?, place))
    }

    /// What may stand behind the name of a value: `: kind`, `[shape]`, `= number`.
    fn described(&mut self, name: &str, default: ValueKind, place: Place) -> Parse<Value> {
        if !self.take(':')? {
            return self.value(name, None, default, place);
        }
        let kind_place = self.start;
        let kind = match self.token {
            Token::Word(word) => kind_of_word(word)
                .ok_or_else(|| self.error(kind_place, ParseErrorKind::UnknownKind { word: word.to_owned() }))?,
            Token::Number(Number::Type(number_type)) if number_type != NumberType::Other => {
                ValueKind::Number(number_type)
            }
            _ => return Err(self.unexpected("a kind: tensor, int, float, bool, number or other")),
        };
        self.advance()?;
        let value = self.value(name, Some(kind), kind, kind_place)?;
        if self.at('[') {
            if kind != ValueKind::Tensor {
                let kind = kind_word(kind);
                return Err(self.error(self.start, ParseErrorKind::NoShape { name: name.to_owned(), kind }));
            }
            if !self.shaped.insert(value) {
                return Err(self.error(self.start, ParseErrorKind::ShapeTwice { name: name.to_owned() }));
            }
            // The numbers in a shape have no shape, so this does not go deeper.
            let mut position = 0;
            self.list(']', |parser| {
                position += 1;
                parser.dimension(value, position - 1)
            })?;
        }
        self.hint(value)?;
        Ok(value)
    }

    fn dimension(&mut self, tensor: Value, position: u32) -> Parse<()> {
        if matches!(self.token, Token::Number(Number::Int(_)) | Token::Word("_")) {
            self.advance()?;
            return Ok(());
        }
        let place = self.start;
        let name = self.value_name()?;
        let mut kind = None;
        if self.take(':')? {
            let kind_place = self.start;
            kind = match self.token {
                Token::Number(Number::Type(number_type)) if number_type != NumberType::Other => {
                    Some(ValueKind::Number(number_type))
                }
                Token::Word("number") => Some(ValueKind::Number(NumberType::Other)),
                _ => return Err(self.unexpected("the kind of a number")),
            };
            self.advance()?;
            self.value(&name, kind, ValueKind::Tensor, kind_place)?;
        }
        let number = self.value(&name, kind, ValueKind::Number(NumberType::Int), place)?;
        if !self.kinds[&number].is_number() {
            let kind = kind_word(self.kinds[&number]);
            return Err(self.error(place, ParseErrorKind::NoShape { name, kind }));
        }
        self.hint(number)?;
        self.built(place, |outline| outline.builder().shape_mention(tensor, position, number))
    }

    /// `= number`, where a number and not the symbol of an op is behind the `=`.
    fn hint(&mut self, value: Value) -> Parse<()> {
        if !self.at('=') || !self.kinds[&value].is_number() {
            return Ok(());
        }
        let ahead = self.lexer.clone().next();
        if let Ok((Token::Number(number), place, _)) = ahead {
            self.advance()?;
            self.advance()?;
            self.built(place, |outline| outline.builder().hint(value, number))?;
        }
        Ok(())
    }

    fn value(&mut self, name: &str, said: Option<ValueKind>, default: ValueKind, place: Place) -> Parse<Value> {
        let kind = said.unwrap_or(default);
        let value = self.built(place, |outline| outline.builder().named_value(name, kind))?;
        let before = *self.kinds.entry(value).or_insert(kind);
        match said {
            Some(now) if now != before => {
                let (before, now) = (kind_word(before), kind_word(now));
                Err(self.error(place, ParseErrorKind::KindConflict { name: name.to_owned(), before, now }))
            }
            _ => Ok(value),
        }
    }

    fn built<T>(&mut self, place: Place, build: impl FnOnce(&mut OutlineBuilder) -> Result<T, BuildError>) -> Parse<T> {
        build(&mut self.outline).map_err(|error| self.error(place, error))
    }

    /// The words behind an op, on top of what its name and the form of its results imply.
    fn flags(&mut self, name: String, form: OpFlags) -> Parse<(Symbol, SymbolFlags, Option<ScalarOp>, OpFlags)> {
        let (mut symbol_flags, mut scalar) = symbol_flags(&name);
        let mut flags = form;
        while let Token::Flag(word) = self.token {
            let place = self.start;
            self.advance()?;
            let (bare, set) = word.strip_prefix("not-").map_or((word, true), |bare| (bare, false));
            if let Some(&(_, flag)) = SYMBOL_FLAG_WORDS.iter().find(|known| known.0 == bare) {
                symbol_flags.set(flag, set);
            } else if let Some(&(_, flag)) = OP_FLAG_WORDS.iter().find(|known| known.0 == bare) {
                flags.set(flag, set);
            } else if word == "no-scalar" {
                scalar = None;
            } else if let Some(known) = word.strip_prefix("scalar-").and_then(ScalarOp::from_name) {
                scalar = Some(known);
            } else {
                return Err(self.error(place, ParseErrorKind::UnknownFlag { word: word.to_owned() }));
            }
        }
        let place = self.start;
        let key = (name, symbol_flags, scalar);
        let symbol = if let Some(&symbol) = self.symbols.get(&key) {
            symbol
        } else {
            let data = SymbolData { name: key.0.clone(), flags: symbol_flags, scalar };
            let symbol = self.built(place, |outline| outline.builder().symbol(data))?;
            self.symbols.insert(key, symbol);
            symbol
        };
        Ok((symbol, symbol_flags, scalar, flags))
    }
}

enum PendingOperand {
    Value(Value),
    New(String),
    Number(Number),
}
