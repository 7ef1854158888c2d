//! Source text into tokens, one at a time.

use std::borrow::Cow;

use crate::ir::{Number, NumberType};

/// More source than this is refused, so that positions and ids fit their types with room to spare.
pub const MAX_SOURCE_BYTES: usize = 1 << 28;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// One of `( ) { } [ ] , : =`.
    Punctuation(char),
    /// A keyword, a kind or the name of a symbol.
    Word(&'a str),
    /// The name of a symbol in quotes.
    Quoted(String),
    /// `%name`
    Value(Cow<'a, str>),
    /// `#word`
    Flag(&'a str),
    Number(Number),
    /// The end of a line.
    Newline,
    /// The end of the text.
    End,
}

/// What the lexer cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LexProblem {
    Character(char),
    Number(String),
    UnclosedQuote,
    Escape,
    EmptyName,
}

#[derive(Clone)]
pub(super) struct Lexer<'a> {
    source: &'a str,
    position: usize,
    line: u32,
}

/// A token, where it starts, and its line.
pub(super) type Spanned<'a> = (Token<'a>, usize, u32);

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, position: 0, line: 1 }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.position..]
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.position += len;
        &rest[..len]
    }

    /// The next token. A problem comes with the place where it is.
    pub(super) fn next(&mut self) -> Result<Spanned<'a>, (LexProblem, usize)> {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\r'));
        if self.rest().starts_with(';') {
            self.take_while(|c| c != '\n');
        }
        let (start, line) = (self.position, self.line);
        let at = |problem| (problem, start);
        let Some(first) = self.rest().chars().next() else { return Ok((Token::End, start, line)) };
        let token = match first {
            '\n' => {
                self.position += 1;
                self.line += 1;
                Token::Newline
            }
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | ':' | '=' => {
                self.position += 1;
                Token::Punctuation(first)
            }
            '%' => {
                self.position += 1;
                if self.rest().starts_with('"') {
                    Token::Value(self.quoted().map_err(at)?.into())
                } else {
                    let name = self.take_while(is_word);
                    if name.is_empty() {
                        return Err(at(LexProblem::EmptyName));
                    }
                    Token::Value(name.into())
                }
            }
            '#' => {
                self.position += 1;
                let word = self.take_while(|c| is_word(c) || c == '-');
                if word.is_empty() {
                    return Err(at(LexProblem::EmptyName));
                }
                Token::Flag(word)
            }
            '"' => Token::Quoted(self.quoted().map_err(at)?),
            '-' | '0'..='9' => Token::Number(self.number().map_err(at)?),
            _ if is_word(first) => {
                let word = self.take_while(is_word);
                named_number(word).map_or(Token::Word(word), Token::Number)
            }
            _ => return Err(at(LexProblem::Character(first))),
        };
        Ok((token, start, line))
    }

    fn number(&mut self) -> Result<Number, LexProblem> {
        let start = self.position;
        self.position += 1;
        // A sign belongs to the number only behind an exponent.
        let mut before = 'e';
        let rest = &self.source[self.position..];
        for c in rest.chars() {
            if !(is_word(c) || (matches!(c, '+' | '-') && matches!(before, 'e' | 'E') && self.position > start + 1)) {
                break;
            }
            before = c;
            self.position += c.len_utf8();
        }
        let text = &self.source[start..self.position];
        let bad = || LexProblem::Number(text.to_owned());
        if text == "-inf" {
            return Ok(Number::Float(f64::NEG_INFINITY));
        }
        // Rust reads names such as "-nan" and "-infinity" as floats; they are no digits.
        if text.contains(['.', 'e', 'E']) && text.chars().all(|c| matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-'))
        {
            text.parse().map(Number::Float).map_err(|_| bad())
        } else {
            text.parse().map(Number::Int).map_err(|_| bad())
        }
    }

    fn quoted(&mut self) -> Result<String, LexProblem> {
        let mut text = String::new();
        let start = self.position + 1;
        let mut chars = self.source[start..].char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    self.position = start + offset + 1;
                    return Ok(text);
                }
                '\n' => return Err(LexProblem::UnclosedQuote),
                '\\' => text.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('"' | '\\'))) => c,
                    _ => return Err(LexProblem::Escape),
                }),
                _ => text.push(c),
            }
        }
        Err(LexProblem::UnclosedQuote)
    }
}

/// Whether a character may stand in a name without quotes.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

/// Numbers that are spelled as words.
pub(super) fn named_number(word: &str) -> Option<Number> {
    Some(match word {
        "True" => Number::Bool(true),
        "False" => Number::Bool(false),
        "int" => Number::Type(NumberType::Int),
        "float" => Number::Type(NumberType::Float),
        "bool" => Number::Type(NumberType::Bool),
        "complex" => Number::Type(NumberType::Other),
        "inf" => Number::Float(f64::INFINITY),
        "NaN" => Number::Float(f64::NAN),
        _ => {
            if let Some(bits) = word.strip_prefix("NaN.") {
                let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
                return value.is_nan().then_some(Number::Float(value));
            }
            return word.strip_prefix("opaque")?.parse().ok().map(Number::Opaque);
        }
    })
}

/// The spelling of a number; reading it again gives the same number.
pub(super) fn spell_number(number: Number) -> String {
    match number {
        Number::Float(x) if x.is_nan() && Number::Float(f64::NAN) != number => format!("NaN.{:016x}", x.to_bits()),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(source);
        std::iter::from_fn(|| lexer.next().ok().map(|(token, ..)| token).filter(|token| *token != Token::End)).collect()
    }

    #[test]
    fn numbers_read_back_as_they_were() {
        let floats = [0.0, -0.0, 1.5, 1e300, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
        let mut numbers: Vec<Number> = floats.into_iter().map(Number::Float).collect();
        numbers.extend([0, -1, i64::MAX, i64::MIN].map(Number::Int));
        numbers.extend([Number::Bool(true), Number::Opaque(7), Number::Type(NumberType::Other)]);
        for number in numbers {
            assert_eq!(tokens(&spell_number(number)), [Token::Number(number)]);
        }
    }

    #[test]
    fn what_is_no_token_is_told() {
        for (source, problem) in [
            ("  ?", LexProblem::Character('?')),
            ("1x", LexProblem::Number("1x".into())),
            ("99999999999999999999", LexProblem::Number("99999999999999999999".into())),
            ("-nan", LexProblem::Number("-nan".into())),
            ("% x", LexProblem::EmptyName),
            ("\"abc", LexProblem::UnclosedQuote),
            ("\"a\\q\"", LexProblem::Escape),
        ] {
            assert_eq!(Lexer::new(source).next().map_err(|(problem, _)| problem), Err(problem), "{source}");
        }
    }

    #[test]
    fn a_comment_ends_with_its_line() {
        assert_eq!(tokens("a ; b\n#c"), [Token::Word("a"), Token::Newline, Token::Flag("c")]);
    }
}
