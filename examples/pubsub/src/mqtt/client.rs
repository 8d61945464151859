//! The client's end of a connection of MQTT 5: a publisher's or a subscriber's.

use std::collections::VecDeque;

use bytes::BytesMut;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::suback::SubAckPacket;
use mqtt5_protocol::packet::subscribe::SubscribePacket;
use mqtt5_protocol::{
    ConnectOptions, Packet, Properties, PropertyId, PropertyValue, QoS, ReasonCode,
};

use super::{ADDED, FIRST, FROM, INSTANCE, MISSED, SEQUENCE, TIME, next, number, packet, write};
use crate::client::{Event, LONGEST_MESSAGE, Place, Refused, Role};
use crate::name::{PublisherName, TopicName};
use crate::topic::Message;

/// The identifier of the only packet SUBSCRIBE.
const SUBSCRIPTION: u16 = 1;

#[derive(Debug)]
pub(crate) struct Client {
    /// The received part of a packet.
    buffer: BytesMut,
    topic: TopicName,
    /// Identifiers of the packets that wait for PUBACK, and the publisher's own numbers. A broker
    /// acknowledges in the order of arrival (MQTT 5, section 4.6).
    in_flight: VecDeque<(u16, u64)>,
    latest_id: u16,
    instance: Option<u64>,
}

impl Client {
    /// A client for one topic. Appends its first packets to `out`: MQTT allows it to continue
    /// before the broker has answered.
    pub(crate) fn new(
        topic: &TopicName,
        name: &PublisherName,
        role: Role,
        out: &mut BytesMut,
    ) -> Self {
        let mut options = ConnectOptions::new(name.as_str())
            .with_clean_start(true)
            // QUIC has its own keep-alive.
            .with_keep_alive(std::time::Duration::ZERO);
        if let Role::Publisher(secret) = role {
            options = options.with_credentials(name.as_str(), secret.text());
        }
        write(&ConnectPacket::new(options), out);
        if let Role::Subscriber(place) = role {
            let mut packet =
                SubscribePacket::new(SUBSCRIPTION).add_filter(topic.as_str(), QoS::AtLeastOnce);
            for (name, value) in [(FROM, place.from), (INSTANCE, place.instance)] {
                if let Some(value) = value {
                    packet = packet.with_user_property(name.to_owned(), value.to_string());
                }
            }
            write(&packet, out);
        }
        Self {
            buffer: BytesMut::new(),
            topic: topic.clone(),
            in_flight: VecDeque::new(),
            latest_id: SUBSCRIPTION,
            instance: None,
        }
    }

    /// Appends a message to `out`.
    pub(crate) fn publish(&mut self, message: &Message, out: &mut BytesMut) {
        // Fewer packets wait than there are identifiers.
        self.latest_id = self.latest_id.checked_add(1).unwrap_or(1);
        let packet = packet(&self.topic, message, QoS::AtLeastOnce);
        write(&packet.with_packet_id(self.latest_id).with_retain(true), out);
        self.in_flight.push_back((self.latest_id, message.sequence));
    }

    /// Appends the last packet to `out`.
    pub(crate) fn end(&self, out: &mut BytesMut) {
        write(&DisconnectPacket::normal(), out);
    }

    /// Receives bytes of the broker, and appends answers to `out` and events to `events`.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        events: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        self.buffer.extend_from_slice(bytes);
        while let Some(packet) =
            next(&mut self.buffer, LONGEST_MESSAGE + ADDED).map_err(|error| error.to_string())?
        {
            match packet {
                Packet::ConnAck(accepted) => {
                    let code = accepted.reason_code;
                    if code != ReasonCode::Success {
                        return Err(refused(&accepted.properties, code));
                    }
                    self.instance = number(&accepted.properties, INSTANCE);
                }
                Packet::SubAck(granted) => events.push(self.granted(&granted)?),
                Packet::Publish(publish) => self.message(publish, out, events),
                Packet::PubAck(acknowledged) => {
                    let code = acknowledged.reason_code;
                    if code.is_error() {
                        return Err(refused(&acknowledged.properties, code));
                    }
                    match self.in_flight.pop_front() {
                        Some((id, own)) if id == acknowledged.packet_id => {
                            events.push(Event::Acknowledged(own));
                        }
                        _ => {
                            return Err("it acknowledged a message out of order".to_owned().into());
                        }
                    }
                }
                Packet::Disconnect(end) => {
                    return Err(refused(&end.properties, end.reason_code));
                }
                Packet::PingResp => {}
                other => return Err(format!("it sent {}", other.packet_type_name()).into()),
            }
        }
        Ok(())
    }

    fn granted(&self, granted: &SubAckPacket) -> Result<Event, Refused> {
        let code = match granted.reason_codes.as_slice() {
            // The codes of SUBACK are a part of all.
            [code] => ReasonCode::from_u8(*code as u8),
            _ => None,
        };
        let code = code.unwrap_or(ReasonCode::UnspecifiedError);
        if code.is_error() {
            return Err(refused(&granted.properties, code));
        }
        let from = number(&granted.properties, FIRST);
        Ok(Event::Began(Place { from, instance: self.instance }))
    }

    fn message(&self, publish: PublishPacket, out: &mut BytesMut, events: &mut Vec<Event>) {
        if let Some(id) = publish.packet_id {
            write(&PubAckPacket::new(id), out);
        }
        let properties = &publish.properties;
        if let Some(missed) = number(properties, MISSED) {
            events.push(Event::Missed(missed));
        }
        events.push(Event::Message(Message {
            sequence: number(properties, SEQUENCE).unwrap_or(0),
            time: number(properties, TIME).unwrap_or(0),
            payload: publish.payload,
        }));
    }
}

/// The broker's refusal: its sentence, or else the code.
fn refused(properties: &Properties, code: ReasonCode) -> Refused {
    let reason = match properties.get(PropertyId::ReasonString) {
        Some(PropertyValue::Utf8String(reason)) => reason.clone(),
        _ => format!("{code:?}"),
    };
    Refused { reason, busy: code == ReasonCode::QuotaExceeded }
}
