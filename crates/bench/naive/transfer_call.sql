SELECT naive.transfer($1, $2, $3)
