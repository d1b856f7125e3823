//! What was read lately, and needn't be read again.

use std::time::Duration;

use lynx_units::Timestamp;

/// For so long nobody minds that somebody else changed it.
const FRESH: Duration = Duration::from_secs(60);

/// A value and when it was read.
#[derive(Clone, Debug)]
pub struct Lately<T>(Option<(T, Timestamp)>);

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Lately<T> {
    /// The value, unless it is too old.
    pub(super) fn get(&self, now: Timestamp) -> Option<&T> {
        let (value, at) = self.0.as_ref()?;
        (now.saturating_since(*at) < FRESH).then_some(value)
    }

    /// Read or written now.
    pub(super) fn set(&mut self, value: T, now: Timestamp) {
        self.0 = Some((value, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_for_a_minute() {
        let mut lately = Lately::default();
        let at = |seconds| Timestamp::from_origin(Duration::from_secs(seconds));
        assert_eq!(lately.get(at(0)), None);
        lately.set(7, at(10));
        assert_eq!(lately.get(at(69)), Some(&7));
        assert_eq!(lately.get(at(70)), None);
    }
}
