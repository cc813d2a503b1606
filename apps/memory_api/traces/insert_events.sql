-- Events of one tenant's traces, a column an array. One statement for any number of them.
insert into trace_events (tenant_id, trace_id, seq, event_id, event_type, content, timestamp, metadata, tool_name, error, agent)
select cast(:tenant as uuid), trace_id, seq, event_id, event_type, content, timestamp, metadata::jsonb, tool_name, error::jsonb, agent
from unnest(
    cast(:trace_id as uuid[]), cast(:seq as int[]), cast(:event_id as text[]), cast(:event_type as text[]),
    cast(:content as text[]), cast(:timestamp as timestamptz[]), cast(:metadata as text[]), cast(:tool_name as text[]),
    cast(:error as text[]), cast(:agent as text[])
) event (trace_id, seq, event_id, event_type, content, timestamp, metadata, tool_name, error, agent)
returning 1
