-- How many tickets wait in the lanes from $1 to $2, counted no further than $3.
select count(*) from (
    select from pgqueuer where status = 'queued' and lane between $1::uuid and $2::uuid limit $3
) waiting
