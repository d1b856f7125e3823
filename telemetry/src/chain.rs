//! An error in one line.

use std::error::Error;

/// An error with its causes. What one of them says again is said once: libraries repeat what their causes say.
///
/// ```
/// # use std::io;
/// # #[derive(Debug, thiserror::Error)]
/// # #[error("the socket can't be opened")]
/// # struct Open(#[source] io::Error);
/// let error = Open(io::Error::other("no room"));
/// assert_eq!(lynx_telemetry::chain(&error), "the socket can't be opened: no room");
/// ```
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if said.starts_with(&last) {
            text.truncate(text.len() - last.len());
            text.push_str(&said);
            last = said;
        } else if !text.contains(&said) {
            text = format!("{text}: {said}");
            last = said;
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Said {
        said: &'static str,
        source: Option<Box<Said>>,
    }

    fn of(words: &[&'static str]) -> String {
        let mut words = words.iter().rev();
        let build = |source, said: &&'static str| Some(Box::new(Said { said, source }));
        let error = words.by_ref().fold(None, build);
        chain(&*error.unwrap())
    }

    #[test]
    fn nothing_is_said_twice() {
        assert_eq!(of(&["a"]), "a");
        assert_eq!(of(&["can't listen", "in use"]), "can't listen: in use");
        assert_eq!(
            of(&["can't listen: in use", "in use"]),
            "can't listen: in use"
        );
        assert_eq!(
            of(&[
                "transport error",
                "tcp connect error",
                "tcp connect error: refused",
                "refused"
            ]),
            "transport error: tcp connect error: refused"
        );
        assert_eq!(of(&["a", "a"]), "a");
    }
}
