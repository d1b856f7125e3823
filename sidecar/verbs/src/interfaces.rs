//! Which network each address of this machine is in.
#![expect(unsafe_code, reason = "a list of libc's")]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// An address of an interface.
pub(crate) struct Address {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    /// The length of the network's prefix in bits.
    pub(crate) prefix: u8,
}

/// All addresses of this network namespace.
pub(crate) fn addresses() -> io::Result<Vec<Address>> {
    let mut first = ptr::null_mut();
    // SAFETY: the list is written where the reference points.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is freed after the loop.
        let entry = unsafe { &*next };
        found.extend(address(entry));
        next = entry.ifa_next;
    }
    // SAFETY: it came from getifaddrs, and goes once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn address(entry: &libc::ifaddrs) -> Option<Address> {
    let address = ip(entry.ifa_addr)?;
    let prefix = match ip(entry.ifa_netmask)? {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    // SAFETY: every entry has a name, which ends with a zero.
    let interface = unsafe { CStr::from_ptr(entry.ifa_name) };
    Some(Address {
        interface: interface.to_string_lossy().into_owned(),
        address,
        prefix: u8::try_from(prefix).ok()?,
    })
}

/// None where it is of another family, or missing.
fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so a socket address, which always has a family.
    let family = unsafe { (*address).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            let address = address.cast::<libc::sockaddr_in>();
            // SAFETY: the family says that it is one of these.
            let bits = unsafe { (*address).sin_addr.s_addr };
            Some(Ipv4Addr::from_bits(u32::from_be(bits)).into())
        }
        libc::AF_INET6 => {
            let address = address.cast::<libc::sockaddr_in6>();
            // SAFETY: the family says that it is one of these.
            let octets = unsafe { (*address).sin6_addr.s6_addr };
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_the_loopback_network() {
        let local = addresses().unwrap();
        let local = local
            .iter()
            .find(|known| known.address == IpAddr::from(Ipv4Addr::LOCALHOST))
            .unwrap();
        assert_eq!((local.interface.as_str(), local.prefix), ("lo", 8));
    }
}
