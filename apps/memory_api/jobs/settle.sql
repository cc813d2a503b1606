-- Tickets that are done with.
delete from pgqueuer where id = any($1::bigint[])
