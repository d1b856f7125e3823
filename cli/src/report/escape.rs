//! Text that may hold anything, made safe to stand between tags and in quoted attributes.

use std::fmt::{self, Write as _};

/// Prints its text with HTML's special characters as entities, and control characters as a visible mark.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                // These would turn the direction of the text after them.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    f.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                c if c.is_control() => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_special_passes() {
        let hostile = "<script>alert('1')</script> & \"x\" \u{202e}\0\x1b";
        let escaped = Escaped(hostile).to_string();
        assert_eq!(
            escaped,
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot; \u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(Escaped("Größe: 3\n\tok").to_string(), "Größe: 3\n\tok");
    }
}
