//! The source of a host block into tokens, one at a time.

use super::spelling::{is_word, USUAL_NAN};

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// One of `( ) { } [ ] , : =`.
    Punctuation(char),
    /// A keyword, or a name without quotes.
    Word(&'a str),
    Text(String),
    Bytes(Vec<u8>),
    /// An integer: digits, perhaps with a sign.
    Int(&'a str),
    /// A float, by its bits.
    Float(u64),
    /// `%name`
    Value(Name),
    /// `~label`
    Proxy(Name),
    /// `$label`
    Shared(Name),
    /// `'1` behind the name of a symbol.
    Copy(u32),
    /// The end of a line.
    Newline,
    /// The end of the text.
    End,
}

/// A name, and which of those that would be the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) copy: u32,
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

pub(super) struct Lexer<'a> {
    source: &'a str,
    position: usize,
}

type Lexed<T> = Result<T, (LexProblem, usize)>;

impl<'a> Lexer<'a> {
    /// Reads from a position on.
    pub(super) fn new(source: &'a str, position: usize) -> Self {
        Self { source, position }
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

    /// The next token and where it starts. A problem comes with the place where it is.
    pub(super) fn next(&mut self) -> Lexed<(Token<'a>, usize)> {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\r'));
        if self.rest().starts_with(';') {
            self.take_while(|c| c != '\n');
        }
        let start = self.position;
        let Some(first) = self.rest().chars().next() else { return Ok((Token::End, start)) };
        let token = match first {
            '\n' => {
                self.position += 1;
                Token::Newline
            }
            '(' | ')' | '{' | '}' | '[' | ']' | ',' | ':' | '=' => {
                self.position += 1;
                Token::Punctuation(first)
            }
            '%' => Token::Value(self.name()?),
            '~' => Token::Proxy(self.name()?),
            '$' => Token::Shared(self.name()?),
            '\'' => Token::Copy(self.copy()?),
            '"' => Token::Text(self.quoted()?),
            'b' if self.rest().starts_with("b\"") => {
                self.position += 1;
                Token::Bytes(self.quoted_bytes()?)
            }
            '-' | '0'..='9' => self.number()?,
            _ if is_word(first) => match self.take_while(is_word) {
                "inf" => Token::Float(f64::INFINITY.to_bits()),
                "nan" => Token::Float(self.nan(start)?),
                word => Token::Word(word),
            },
            _ => return Err((LexProblem::Character(first), start)),
        };
        Ok((token, start))
    }

    fn name(&mut self) -> Lexed<Name> {
        let start = self.position;
        self.position += 1;
        let text = if self.rest().starts_with('"') { self.quoted()? } else { self.take_while(is_word).to_owned() };
        if text.is_empty() && self.position == start + 1 {
            return Err((LexProblem::EmptyName, start));
        }
        let copy = if self.rest().starts_with('\'') { self.copy()? } else { 0 };
        Ok(Name { text, copy })
    }

    fn copy(&mut self) -> Lexed<u32> {
        let start = self.position;
        self.position += 1;
        let digits = self.take_while(is_word);
        let is_canonical = !digits.starts_with(['0', '+']);
        match digits.parse() {
            Ok(copy) if is_canonical => Ok(copy),
            _ => Err((LexProblem::Number(format!("'{digits}")), start)),
        }
    }

    /// What may stand behind `nan`: other bits than the usual ones.
    fn nan(&mut self, start: usize) -> Lexed<u64> {
        let Some(rest) = self.rest().strip_prefix("(0x") else { return Ok(USUAL_NAN) };
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len())];
        self.position += "(0x".len() + digits.len();
        let bits = u64::from_str_radix(digits, 16).ok().filter(|&bits| f64::from_bits(bits).is_nan());
        match bits {
            Some(bits) if self.rest().starts_with(')') => {
                self.position += 1;
                Ok(bits)
            }
            _ => Err((LexProblem::Number(self.source[start..self.position].to_owned()), start)),
        }
    }

    fn number(&mut self) -> Lexed<Token<'a>> {
        let start = self.position;
        self.position += 1;
        // A sign belongs to the number only behind an exponent.
        let mut before = ' ';
        for c in self.source[self.position..].chars() {
            if !(is_word(c) || (matches!(c, '+' | '-') && matches!(before, 'e' | 'E'))) {
                break;
            }
            before = c;
            self.position += c.len_utf8();
        }
        let text = &self.source[start..self.position];
        if text == "-inf" {
            return Ok(Token::Float(f64::NEG_INFINITY.to_bits()));
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Token::Int(text));
        }
        // Rust reads names such as "-infinity" as floats; they are no digits.
        let is_float = text.contains(['.', 'e', 'E'])
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        match text.parse::<f64>() {
            Ok(float) if is_float => Ok(Token::Float(float.to_bits())),
            _ => Err((LexProblem::Number(text.to_owned()), start)),
        }
    }

    fn quoted(&mut self) -> Lexed<String> {
        let mut text = String::new();
        self.quoted_with(|c, _| {
            text.push(c);
            true
        })?;
        Ok(text)
    }

    fn quoted_bytes(&mut self) -> Lexed<Vec<u8>> {
        let mut bytes = Vec::new();
        self.quoted_with(|c, escaped| match u8::try_from(c) {
            Ok(byte) if escaped || byte.is_ascii() => {
                bytes.push(byte);
                true
            }
            _ => false,
        })?;
        Ok(bytes)
    }

    /// Reads what is in quotes; `push` gets each character, and whether it was escaped, and says
    /// whether it may stand there.
    fn quoted_with(&mut self, mut push: impl FnMut(char, bool) -> bool) -> Lexed<()> {
        let quote = self.position;
        self.position += 1;
        loop {
            let start = self.position;
            let Some(c) = self.rest().chars().next() else { return Err((LexProblem::UnclosedQuote, quote)) };
            self.position += c.len_utf8();
            let escaped = c == '\\';
            let c = match c {
                '"' => return Ok(()),
                '\n' => return Err((LexProblem::UnclosedQuote, quote)),
                '\\' => self.escape().ok_or((LexProblem::Escape, start))?,
                c => c,
            };
            if !push(c, escaped) {
                let problem = if escaped { LexProblem::Escape } else { LexProblem::Character(c) };
                return Err((problem, start));
            }
        }
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        let digits = match c {
            'n' => return Some(self.escaped('\n')),
            't' => return Some(self.escaped('\t')),
            'r' => return Some(self.escaped('\r')),
            '"' | '\\' => return Some(self.escaped(c)),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return None,
        };
        let code = self.rest().get(1..=digits)?;
        if !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.position += 1 + digits;
        char::from_u32(u32::from_str_radix(code, 16).ok()?)
    }

    fn escaped(&mut self, c: char) -> char {
        self.position += 1;
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::spelling::{push_bytes, push_float, push_text};

    fn only_token(source: &str) -> Token<'_> {
        let mut lexer = Lexer::new(source, 0);
        let (token, _) = lexer.next().expect("a token");
        assert_eq!(lexer.next(), Ok((Token::End, source.len())), "{source}");
        token
    }

    #[test]
    fn floats_read_back_by_their_bits() {
        let mut all: Vec<u64> = [0.0, -0.0, 1.5, 1e300, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, 1e16, 0.1]
            .map(f64::to_bits)
            .into();
        all.extend([USUAL_NAN, USUAL_NAN | 1 << 63, USUAL_NAN | 1, 0x7ff0_0000_0000_0001, u64::MAX]);
        for bits in all {
            let mut text = String::new();
            push_float(&mut text, bits);
            assert_eq!(only_token(&text), Token::Float(bits), "{text}");
        }
    }

    #[test]
    fn every_character_reads_back() {
        let content: String = (0..0x11_0000).step_by(7).chain(0..0x300).filter_map(char::from_u32).collect();
        let content = content + "\u{2028}\u{202e}\u{feff}\u{e0001}\"\\\r\n\t";
        let mut text = String::new();
        push_text(&mut text, &content);
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'));
        assert_eq!(only_token(&text), Token::Text(content));
        let content: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        push_bytes(&mut text, &content);
        assert!(text.is_ascii());
        assert_eq!(only_token(&text), Token::Bytes(content));
    }

    #[test]
    fn what_is_no_token_is_told() {
        for (source, problem) in [
            ("  ?", LexProblem::Character('?')),
            ("1x", LexProblem::Number("1x".into())),
            ("-nan", LexProblem::Number("-nan".into())),
            ("nan(0x0)", LexProblem::Number("nan(0x0".into())),
            ("--1", LexProblem::Number("-".into())),
            ("% x", LexProblem::EmptyName),
            ("%x'0", LexProblem::Number("'0".into())),
            ("%x'", LexProblem::Number("'".into())),
            ("\"abc", LexProblem::UnclosedQuote),
            ("\"abc\n\"", LexProblem::UnclosedQuote),
            ("\"a\\q\"", LexProblem::Escape),
            ("\"\\ud800\"", LexProblem::Escape),
            ("\"\\x+1\"", LexProblem::Escape),
            ("b\"é\"", LexProblem::Character('é')),
            ("b\"\\u00e9x\\u0100\"", LexProblem::Escape),
        ] {
            assert_eq!(Lexer::new(source, 0).next().map_err(|(problem, _)| problem), Err(problem), "{source}");
        }
    }
}
